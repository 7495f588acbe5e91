{{/*
The Deployment of either component. What differs between the two is in the templates
osm.manager.* and osm.webhook.*, beside the component's other objects.
*/}}

{{/* The values of a component. What the webhook does not set, it takes from the manager. */}}
{{- define "osm.values" -}}
{{- $values := .root.Values }}
{{- if ne .component "manager" }}
{{- $shared := pick $values "affinity" "hostUsers" "nodeSelector" "podAnnotations" "podLabels" "priorityClassName"
  "revisionHistoryLimit" "strategy" "terminationGracePeriodSeconds" "tolerations" "topologySpreadConstraints" }}
{{- $values = $shared }}
{{- range $name, $value := .root.Values.webhook }}
{{- if not (kindIs "invalid" $value) }}
{{- $values = set $values $name $value }}
{{- end }}
{{- end }}
{{- end }}
{{- $values | toYaml }}
{{- end }}

{{- define "osm.deployment" -}}
{{- $root := .root }}
{{- $values := include "osm.values" . | fromYaml }}
{{- $selector := include "osm.selector" . | fromYaml }}
{{- $part := printf "osm.%s" .component }}
apiVersion: apps/v1
kind: Deployment
metadata: {{- include "osm.metadata" . | nindent 2 }}
spec:
  replicas: {{ include "osm.replicas" . }}
  revisionHistoryLimit: {{ $values.revisionHistoryLimit }}
  {{- with $values.strategy }}
  strategy: {{- toYaml . | nindent 4 }}
  {{- end }}
  selector:
    matchLabels: {{- toYaml $selector | nindent 6 }}
  template:
    metadata:
      labels: {{- include "osm.labels" (merge (dict "more" $values.podLabels) .) | nindent 8 }}
      {{- $annotations := include (printf "%s.annotations" $part) $root | fromYaml }}
      {{- with merge $annotations $values.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "osm.serviceAccount" . }}
      {{- if kindIs "bool" $values.hostUsers }}
      hostUsers: {{ $values.hostUsers }}
      {{- end }}
      terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      {{- with include "osm.pullSecrets" $root }}
      imagePullSecrets: {{- . | nindent 6 }}
      {{- end }}
      {{- with $values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations: {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with $values.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.topologySpreadConstraints }}
      topologySpreadConstraints:
      {{- range . }}
      {{- $ours := hasKey . "labelSelector" | ternary dict (dict "labelSelector" (dict "matchLabels" $selector)) }}
      - {{- merge . $ours | toYaml | nindent 8 }}
      {{- end }}
      {{- end }}
      {{- with include (printf "%s.pod" $part) $root }}
      {{- . | nindent 6 }}
      {{- end }}
      containers:
      - name: {{ ternary "osm" .component (eq .component "manager") }}
        image: {{ include "osm.image" $root | quote }}
        imagePullPolicy: {{ $root.Values.image.pullPolicy }}
        {{- include (printf "%s.container" $part) $root | nindent 8 }}
        livenessProbe:
          httpGet:
            path: /livez
            port: admin
          periodSeconds: 10
        readinessProbe:
          httpGet:
            path: /readyz
            port: admin
          periodSeconds: 5
        {{- with $values.resources }}
        resources: {{- toYaml . | nindent 10 }}
        {{- end }}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop: [ALL]
        {{- $mounts := include (printf "%s.mounts" $part) $root | fromYamlArray }}
        {{- with concat $mounts ($values.extraVolumeMounts | default list) }}
        volumeMounts: {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- $volumes := include (printf "%s.volumes" $part) $root | fromYamlArray }}
      {{- with concat $volumes ($values.extraVolumes | default list) }}
      volumes: {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end }}
