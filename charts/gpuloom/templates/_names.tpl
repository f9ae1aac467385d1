{{- define "gpuloom.name" -}}
{{- if contains "gpuloom" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-gpuloom" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gpuloom.serviceAccount" -}}
{{- default (include "gpuloom.name" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "gpuloom.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{- define "gpuloom.selector" -}}
app.kubernetes.io/name: gpuloom
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpuloom.labels" -}}
{{ include "gpuloom.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* What the pods of both DaemonSets share: who they are and where they may run. */}}
{{- define "gpuloom.podPlacement" -}}
serviceAccountName: {{ include "gpuloom.serviceAccount" . }}
# Nothing here talks to the API server.
automountServiceAccountToken: false
{{- if and .Values.runtimeClassName (not .Values.softgpu.enabled) }}
runtimeClassName: {{ .Values.runtimeClassName }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with fromYaml (include "gpuloom.affinity" .) }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The value `affinity`, and with it the nodes of gpuNodeLabels where nobody has chosen nodes. Terms are alternatives. */}}
{{- define "gpuloom.affinity" -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- $chosen := or .Values.softgpu.enabled .Values.nodeSelector $affinity.nodeAffinity -}}
{{- if and .Values.gpuNodeLabels (not $chosen) -}}
{{- $terms := list -}}
{{- range $key, $value := .Values.gpuNodeLabels -}}
{{- $label := dict "key" $key "operator" "Exists" -}}
{{- if $value -}}
{{- $label = dict "key" $key "operator" "In" "values" (list $value) -}}
{{- end -}}
{{- $terms = append $terms (dict "matchExpressions" (list $label)) -}}
{{- end -}}
{{- $required := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- $_ := set $affinity "nodeAffinity" $required -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end -}}

{{/* Which GPUs a container sees. */}}
{{- define "gpuloom.gpuEnvironment" -}}
{{- if .Values.softgpu.enabled -}}
- name: GPULOOM_SOFTGPU_DEVICES
  value: {{ .Values.softgpu.devices | quote }}
- name: GPULOOM_SOFTGPU_MEMORY
  value: {{ .Values.softgpu.memory | quote }}
{{- else -}}
- name: NVIDIA_VISIBLE_DEVICES
  value: all
- name: NVIDIA_DRIVER_CAPABILITIES
  value: compute,utility
{{- end }}
{{- end -}}

{{/* Root, because the kubelet's sockets and the state belong to root; nothing of root's powers beyond what is named here. */}}
{{- define "gpuloom.securityContext" -}}
runAsUser: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- with .add }}
  add: [{{ join ", " . }}]
  {{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}
