{{/* What objects are called. Names and the selector never change for a release: the pods of another name would be other
     pods, and the tenants of the old schedulers would end with them. */}}
{{- define "gpuloom.name" -}}
{{- default "gpuloom" .Values.nameOverride -}}
{{- end -}}

{{- define "gpuloom.fullname" -}}
{{- $name := include "gpuloom.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Refuses an upgrade that would call the release's schedulers otherwise. Nothing is looked up where there is no cluster. */}}
{{- define "gpuloom.keepNames" -}}
{{- if .Release.IsUpgrade -}}
{{- $ours := printf "%s-schedulers" (include "gpuloom.fullname" .) -}}
{{- range (lookup "apps/v1" "DaemonSet" .Release.Namespace "").items -}}
{{- $labels := default dict .metadata.labels -}}
{{- $is := get $labels "app.kubernetes.io/component" | eq "schedulers" -}}
{{- if and $is (get $labels "helm.sh/chart" | hasPrefix "gpuloom-") (get $labels "app.kubernetes.io/instance" | eq $.Release.Name) -}}
{{- if ne .metadata.name $ours -}}
{{- fail (printf "the schedulers of this release are called %s, and with these values of fullnameOverride and nameOverride they would be called %s: others would take their place, and the CUDA work of every tenant would end. Keep the names that the release was installed with: --set fullnameOverride=%s. For other names, uninstall first" .metadata.name $ours (.metadata.name | trimSuffix "-schedulers")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gpuloom.serviceAccount" -}}
{{- default (include "gpuloom.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "gpuloom.image" -}}
{{- with .Values.image.digest -}}
{{- printf "%s@%s" $.Values.image.repository . -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "gpuloom.selector" -}}
app.kubernetes.io/name: {{ include "gpuloom.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "gpuloom.labels" -}}
{{- include "gpuloom.moreLabels" (dict "root" $ "labels" dict) -}}
{{- end -}}

{{/* The same with an object's own, which win over commonLabels: (dict "root" $ "labels" LABELS). */}}
{{- define "gpuloom.moreLabels" -}}
{{ include "gpuloom.selector" .root }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with merge dict (default dict .labels) (default dict .root.Values.commonLabels) }}
{{ toYaml . }}
{{- end }}
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

{{/* Where `gpuloom` in the pod looks. */}}
{{- define "gpuloom.folderEnvironment" -}}
- name: GPULOOM_STATE_DIR
  value: {{ .Values.stateDir | quote }}
- name: GPULOOM_KUBELET_DIR
  value: {{ .Values.kubeletDir | quote }}
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
