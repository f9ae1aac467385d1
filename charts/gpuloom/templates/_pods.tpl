{{/* What the pods of both DaemonSets share: who they are and where they may run. All take
     (dict "root" $ "component" "agent" or "schedulers"), and podPlacement a "serviceAccount" in place of theirs and
     a "work" that needs no driver (_node_work.tpl). */}}

{{/* A setting `key` of the component's pods as YAML: the component's own, else the shared one; nothing where it is empty.
     A key that is missing is one of a release that is upgraded with --reuse-values. */}}
{{- define "gpuloom.podSetting" -}}
{{- $value := get .root.Values .key -}}
{{- $own := get (get .root.Values .component) .key -}}
{{- if and (hasKey (get .root.Values .component) .key) (not (kindIs "invalid" $own)) -}}
{{- $value = $own -}}
{{- end -}}
{{- with $value -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* "yes" where agents post events; a release that is upgraded with --reuse-values has no such value. */}}
{{- define "gpuloom.tellsEvents" -}}
{{- if dig "enabled" true (default dict .Values.events) -}}
yes
{{- end -}}
{{- end -}}

{{- define "gpuloom.podMetadata" -}}
labels:
  {{- include "gpuloom.selector" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- $own := fromYaml (include "gpuloom.podSetting" (merge (dict "key" "podLabels") .)) }}
  {{- with merge dict $own (default dict .root.Values.commonLabels) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with include "gpuloom.podSetting" (merge (dict "key" "podAnnotations") .) }}
annotations:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels and annotations of the pods of hooks, of the component's: (dict "root" $ "component" "agent" or "schedulers"). */}}
{{- define "gpuloom.hookPodLabels" -}}
{{- $own := fromYaml (include "gpuloom.podSetting" (merge (dict "key" "podLabels") .)) }}
{{- with merge dict $own (default dict .root.Values.commonLabels) }}
{{- toYaml . }}
{{- end }}
{{- end -}}

{{/* Of the containers that work for hooks; a release that is upgraded with --reuse-values has no such value. */}}
{{- define "gpuloom.hookResources" -}}
{{- $small := dict "requests" (dict "cpu" "10m" "memory" "32Mi") "limits" (dict "memory" "256Mi") -}}
{{- toYaml (default $small .Values.hookResources) -}}
{{- end -}}

{{- define "gpuloom.podPlacement" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ default (include "gpuloom.serviceAccount" .root) .serviceAccount }}
# Nothing here talks to the API server, but for the agent that posts events.
automountServiceAccountToken: {{ if and (eq .component "agent") (include "gpuloom.tellsEvents" .root) }}true{{ else }}false{{ end }}
{{- if and $values.runtimeClassName (not (or $values.softgpu.enabled .work)) }}
runtimeClassName: {{ $values.runtimeClassName }}
{{- end }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "gpuloom.podSetting" (merge (dict "key" "priorityClassName") .) }}
priorityClassName: {{ . }}
{{- end }}
{{- with include "gpuloom.podSetting" (merge (dict "key" "podSecurityContext") .) }}
securityContext:
  {{- . | nindent 2 }}
{{- end }}
{{- with include "gpuloom.podSetting" (merge (dict "key" "nodeSelector") .) }}
nodeSelector:
  {{- . | nindent 2 }}
{{- end }}
{{- with fromYaml (include "gpuloom.affinity" .) }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "gpuloom.podSetting" (merge (dict "key" "tolerations") .) }}
tolerations:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The setting `affinity`, and with it the nodes of gpuNodeLabels where nobody has chosen nodes. Terms are alternatives,
     so what the presets want is added to each of them. */}}
{{- define "gpuloom.affinity" -}}
{{- $values := .root.Values -}}
{{- $affinity := fromYaml (include "gpuloom.podSetting" (merge (dict "key" "affinity") .)) -}}
{{- $selector := include "gpuloom.podSetting" (merge (dict "key" "nodeSelector") .) -}}
{{- $required := get (default dict $affinity.nodeAffinity) "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $terms := get (default dict $required) "nodeSelectorTerms" | default list -}}
{{- if and $values.gpuNodeLabels (not (or $values.softgpu.enabled $selector $affinity.nodeAffinity)) -}}
{{- range $key, $value := $values.gpuNodeLabels -}}
{{- $label := dict "key" $key "operator" "Exists" -}}
{{- if $value -}}
{{- $label = dict "key" $key "operator" "In" "values" (list $value) -}}
{{- end -}}
{{- $terms = append $terms (dict "matchExpressions" (list $label)) -}}
{{- end -}}
{{- end -}}
{{- $wanted := fromYaml (include "gpuloom.affinityPresets" .root) -}}
{{- if $wanted.expressions -}}
{{- $each := list -}}
{{- range (default (list dict) $terms) -}}
{{- $expressions := concat (get . "matchExpressions" | default list) $wanted.expressions -}}
{{- $each = append $each (merge (dict "matchExpressions" $expressions) .) -}}
{{- end -}}
{{- $terms = $each -}}
{{- end -}}
{{- if $terms -}}
{{- $node := dict "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- $_ := set $affinity "nodeAffinity" (merge $node (default dict $affinity.nodeAffinity)) -}}
{{- end -}}
{{- toYaml $affinity -}}
{{- end -}}

{{/* What each of affinityPresets wants of a node. */}}
{{- define "gpuloom.affinityPresets" -}}
expressions:
{{- range .Values.affinityPresets }}
  {{- if eq . "linuxAmd64" }}
  - {key: kubernetes.io/os, operator: In, values: [linux]}
  - {key: kubernetes.io/arch, operator: In, values: [amd64]}
  {{- else if eq . "noVirtualNodes" }}
  - {key: type, operator: NotIn, values: [virtual-kubelet]}
  - {key: eks.amazonaws.com/compute-type, operator: NotIn, values: [fargate]}
  {{- else if eq . "noNvidiaDevicePlugin" }}
  - {key: nvidia.com/gpu.deploy.device-plugin, operator: NotIn, values: ["true"]}
  {{- end }}
{{- end }}
{{- end -}}
