{{- define "berth.name" -}}
{{- if contains "berth" .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-berth" .Release.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{- define "berth.replicas" -}}
{{ include "berth.name" . }}-replicas
{{- end -}}

{{- define "berth.sandboxNamespace" -}}
{{ .Values.sandboxes.namespace | default (printf "%s-sandboxes" (include "berth.name" .)) }}
{{- end -}}

{{- define "berth.selector" -}}
app.kubernetes.io/name: berth
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "berth.labels" -}}
{{ include "berth.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* Every name by which clients in the cluster reach the port, as JSON. */}}
{{- define "berth.hosts" -}}
{{- $namespace := .Release.Namespace -}}
{{- $names := list -}}
{{- $services := list (include "berth.name" .) -}}
{{- range $index := until (int .Values.replicas) -}}
{{- $services = append $services (printf "%s-%d" (include "berth.name" $) $index) -}}
{{- $services = append $services (printf "%s-%d.%s" (include "berth.name" $) $index (include "berth.replicas" $)) -}}
{{- end -}}
{{- range $service := $services -}}
{{- $names = append $names $service -}}
{{- $names = append $names (printf "%s.%s" $service $namespace) -}}
{{- $names = append $names (printf "%s.%s.svc" $service $namespace) -}}
{{- $names = append $names (printf "%s.%s.svc.cluster.local" $service $namespace) -}}
{{- end -}}
{{- concat $names .Values.allowHosts | toJson -}}
{{- end -}}
