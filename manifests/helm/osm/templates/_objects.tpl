{{/* Objects that both components have, and objects that are read from the files of kustomize. */}}

{{/* A component's ServiceAccount. */}}
{{- define "osm.account" -}}
{{- $values := ternary .root.Values.serviceAccount .root.Values.webhook.serviceAccount (eq .component "manager") }}
{{- if $values.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "osm.serviceAccount" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "osm.labels" . | nindent 4 }}
  {{- with $values.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "osm.podDisruptionBudget" -}}
{{- $values := ternary .root.Values .root.Values.webhook (eq .component "manager") }}
{{- with $values.podDisruptionBudget }}
{{- if .enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{- include "osm.metadata" $ | nindent 2 }}
spec:
  {{- if kindIs "invalid" .minAvailable }}
  maxUnavailable: {{ .maxUnavailable }}
  {{- else }}
  minAvailable: {{ .minAvailable }}
  {{- end }}
  unhealthyPodEvictionPolicy: {{ .unhealthyPodEvictionPolicy }}
  selector:
    matchLabels: {{- include "osm.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "osm.serviceMonitor" -}}
{{- with .root.Values.serviceMonitor }}
{{- if .enabled -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {{- include "osm.metadata" (merge (dict "more" .labels) $) | nindent 2 }}
spec:
  selector:
    matchLabels: {{- include "osm.selector" $ | nindent 6 }}
  endpoints:
  - port: admin
    path: /metrics
    {{- with .interval }}
    interval: {{ . }}
    {{- end }}
    {{- with .scrapeTimeout }}
    scrapeTimeout: {{ . }}
    {{- end }}
    {{- with .relabelings }}
    relabelings: {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with .metricRelabelings }}
    metricRelabelings: {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The objects of a file that kustomize also reads, with the names and the namespace of this release, and
with its labels; `file` is the path. ServiceAccounts are left out, since osm.account creates them, and so
are Secrets, which are not part of rbac.create.
*/}}
{{- define "osm.fromFile" -}}
{{- $root := .root }}
{{- $account := printf "kind: ServiceAccount\n  name: %s\n" (include "osm.serviceAccount" .) }}
{{- $listed := printf "kind: ServiceAccount\n  name: @%s\n" (ternary "" "-webhook" (eq .component "manager")) }}
{{- $labels := printf "\n  labels:\n%s\n" (include "osm.labels" . | indent 4) }}
{{- $text := $root.Files.Get .file | replace "operating-system-manager" "@" | replace $listed $account }}
{{- $text = $text | replace "namespace: @\n" (printf "namespace: %s\n" $root.Release.Namespace) }}
{{- range splitList "\n---\n" ($text | replace "@" (include "osm.fullname" $root)) }}
{{- if not (regexMatch "(?m)^kind: (ServiceAccount|Secret)$" .) }}
---
{{ if contains "\n  labels:\n" . }}
{{- replace "\n  labels:\n" $labels . }}
{{- else }}
{{- replace "\nmetadata:\n" (printf "\nmetadata:%s" $labels) . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
