{{- /* Brokers' network policies find the operator by this label: it is always the same. */ -}}
{{- define "imago.label" -}}imago-operator{{- end }}

{{- /* The name of what the chart makes, and of the Lease: the installation's. */ -}}
{{- define "imago.name" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if .Values.nameOverride -}}
{{ printf "%s-%s" .Release.Name .Values.nameOverride | trunc 53 | trimSuffix "-" }}
{{- else -}}
imago-operator
{{- end -}}
{{- end }}

{{- /* The same, where it is about more than the operator. */ -}}
{{- define "imago.shared" -}}
{{- if or .Values.fullnameOverride .Values.nameOverride }}{{ include "imago.name" . }}{{ else }}imago{{ end -}}
{{- end }}

{{- /* Names in the cluster's scope: operators of several namespaces must not share them. */ -}}
{{- define "imago.clusterName" -}}
{{ include "imago.name" . }}-{{ .Release.Namespace }}
{{- end }}

{{- define "imago.selector" -}}
app.kubernetes.io/name: {{ include "imago.label" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "imago.labels" -}}
{{ include "imago.selector" . }}
{{ include "imago.commonLabels" . }}
{{- end }}

{{- define "imago.commonLabels" -}}
app.kubernetes.io/part-of: imago
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Of pods that Helm runs: no other labels than these, so that no Service finds them. */ -}}
{{- define "imago.hookLabels" -}}
app.kubernetes.io/name: imago-operator-hook
app.kubernetes.io/instance: {{ .Release.Name }}
{{ include "imago.commonLabels" . }}
{{- end }}

{{- define "imago.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "imago.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "imago.name" .) }}
{{- end }}

{{- /* Rules of the operator in a namespace, as a YAML list. */ -}}
{{- define "imago.namespaceRules" -}}
{{- $rights := .Files.Get "files/rights.yaml" | fromYaml -}}
{{- $found := $rights.namespace -}}
{{- if .Values.pipelines.enabled -}}
{{- $found = concat $found $rights.pipelines -}}
{{- if .Values.pipelines.sparkOperator -}}
{{- $found = concat $found $rights.sparkOperator -}}
{{- end -}}
{{- end -}}
{{- range $found }}
{{- if and (has "secrets" .resources) $.Values.rbac.secrets }}
{{- /* Who creates an object has no name to be confined to. */}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames:
    {{- toYaml $.Values.rbac.secrets | nindent 4 }}
  verbs: {{ without .verbs "create" | toJson }}
{{- else }}
- {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Of one endpoint of a monitor. */ -}}
{{- define "imago.relabelings" -}}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "imago.subjects" -}}
- kind: ServiceAccount
  name: {{ include "imago.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- /* What a hook's container has in common: the operator's image, and nothing to write to. */ -}}
{{- define "imago.hookContainer" -}}
image: {{ include "imago.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.containerSecurityContext | nindent 2 }}
resources:
  requests: {cpu: 10m, memory: 32Mi}
  limits: {memory: 128Mi}
{{- end }}

{{- define "imago.podBasics" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
