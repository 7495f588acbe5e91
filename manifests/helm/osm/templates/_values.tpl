{{/*
Values that cannot be used, or that have another name.
*/}}

{{/* The values that are maps and have defaults. A test makes this list from values.yaml. */}}
{{- define "osm.maps" -}}
- global
- image
- fleetPage
- egressProxy
- serviceAccount
- rbac
- podDisruptionBudget
- networkPolicy
- serviceMonitor
- prometheusRule
- dashboards
- webhook
- webhook.certManager
- webhook.serviceAccount
- webhook.podDisruptionBudget
- webhook.networkPolicy
{{- end }}

{{/* Helm's --reuse-values drops the defaults of values that came with a newer chart. */}}
{{- define "osm.check" -}}
{{- range $path := include "osm.maps" . | fromYamlArray }}
{{- $found := $.Values }}
{{- range $key := splitList "." $path }}
{{- $found = get ($found | default dict) $key }}
{{- end }}
{{- if not (kindIs "map" $found) }}
{{- fail (printf "the values have no %s: they are those of an older chart, or it was set to null; use --reset-then-reuse-values instead of --reuse-values" $path) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The number of replicas of a component, also by its former name. */}}
{{- define "osm.replicas" -}}
{{- $values := ternary .root.Values .root.Values.webhook (eq .component "manager") }}
{{- $count := $values.replicaCount }}
{{- if hasKey $values "replicas" }}
{{- if not (has $count (list nil 2.0 3.0 $values.replicas)) }}
{{- fail (printf "replicas and replicaCount of the %s are both set: remove replicas, which is the former name (--set replicas=null)" .component) }}
{{- end }}
{{- $count = $values.replicas }}
{{- end }}
{{- $count }}
{{- end }}
