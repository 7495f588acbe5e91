{{/* One process serves a management cluster, so its objects have one name wherever it is installed. */}}
{{- define "osm.name" -}}operating-system-manager{{- end }}

{{- define "osm.selector" -}}
app.kubernetes.io/name: {{ include "osm.name" . }}
{{- end }}

{{- define "osm.labels" -}}
{{ include "osm.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
