{{/*
Names, labels and the image. Most of these take a component: the map
`dict "root" $ "component" "manager"`, or "webhook".
*/}}

{{/* The name of the manager's objects, with which every other name begins. */}}
{{- define "osm.fullname" -}}
{{ .Values.fullnameOverride | default .Values.nameOverride | default "operating-system-manager" }}
{{- end }}

{{/* The name of a component's objects. */}}
{{- define "osm.name" -}}
{{ include "osm.fullname" .root }}{{ if ne .component "manager" }}-{{ .component }}{{ end }}
{{- end }}

{{/* The one label by which Deployments, Services and the others select the pods of a component. */}}
{{- define "osm.selector" -}}
{{- $name := .root.Values.nameOverride | default (include "osm.fullname" .root) -}}
app.kubernetes.io/name: {{ $name }}{{ if ne .component "manager" }}-{{ .component }}{{ end }}
{{- end }}

{{/* The labels of every object; `more` are further ones. Only the one that selects cannot be changed. */}}
{{- define "osm.labels" -}}
{{- $chart := .root.Chart }}
{{- $ours := dict
  "app.kubernetes.io/component" .component
  "app.kubernetes.io/instance" .root.Release.Name
  "app.kubernetes.io/managed-by" .root.Release.Service
  "app.kubernetes.io/part-of" "operating-system-manager"
  "app.kubernetes.io/version" $chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" $chart.Name $chart.Version | replace "+" "_" | trunc 63)
}}
{{- $selector := include "osm.selector" . | fromYaml }}
{{- merge $selector (.more | default dict) .root.Values.commonLabels $ours | toYaml }}
{{- end }}

{{/* The name, namespace and labels of an object of a component. */}}
{{- define "osm.metadata" -}}
name: {{ include "osm.name" . }}{{ with .suffix }}-{{ . }}{{ end }}
namespace: {{ .root.Release.Namespace }}
labels: {{- include "osm.labels" . | nindent 2 }}
{{- end }}

{{/* The name of a component's ServiceAccount. */}}
{{- define "osm.serviceAccount" -}}
{{- $values := ternary .root.Values.serviceAccount .root.Values.webhook.serviceAccount (eq .component "manager") }}
{{- $values.name | default (include "osm.name" .) }}
{{- end }}

{{/* The image. What precedes the first slash is a registry if it is `localhost` or has a dot or a colon. */}}
{{- define "osm.image" -}}
{{- $image := .Values.image }}
{{- $repository := $image.repository }}
{{- with .Values.global.imageRegistry }}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $repository "") }}
{{- end }}
{{- if $image.digest }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $repository ($image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* Pull secrets, of this chart and of the charts around it; each may be a name or an object. */}}
{{- define "osm.pullSecrets" -}}
{{- $secrets := list }}
{{- range concat (.Values.image.pullSecrets | default list) (.Values.global.imagePullSecrets | default list) }}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- with uniq $secrets }}
{{- toYaml . }}
{{- end }}
{{- end }}
