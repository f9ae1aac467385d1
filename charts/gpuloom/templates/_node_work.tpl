{{/* "yes" where `helm uninstall` runs hooks. They are made for a cluster that is asked (an empty list has items, too) and
     not for helm template or kustomize: whoever applies their output would begin to uninstall. */}}
{{- define "gpuloom.hasUninstallHooks" -}}
{{- $asked := lookup "apps/v1" "DaemonSet" .Release.Namespace "" -}}
{{- if and (hasKey $asked "items") (dig "enabled" true (default dict .Values.uninstallHooks)) (not .Values.removeState) -}}
yes
{{- end -}}
{{- end -}}

{{/* Of an object of the hooks: (dict "phases" "pre-delete" "weight" 0). A failed one stays, for its log; the next
     helm uninstall replaces it. */}}
{{- define "gpuloom.hookAnnotations" -}}
helm.sh/hook: {{ .phases }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* Rules of a NetworkPolicy for who may reach the API server, whose address no policy can name, at the ports that it has before
     and behind its Service; and whatever the values add. */}}
{{- define "gpuloom.apiServerEgress" -}}
{{- $server := dict "ports" (list (dict "port" 443 "protocol" "TCP") (dict "port" 6443 "protocol" "TCP")) -}}
{{- toYaml (append (default list (default dict .Values.networkPolicy).egress) $server) -}}
{{- end -}}

{{/* A NetworkPolicy that lets pods of these components neither be reached nor reach anybody, but for whom `egress` names. Takes
     (dict "root" $ "name" SUFFIX "components" LIST) and, of a hook, "annotations"; "egress" is rules as text. */}}
{{- define "gpuloom.closedNetwork" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "gpuloom.fullname" .root }}-{{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "gpuloom.labels" .root | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- . | nindent 4 }}
  {{- end }}
spec:
  podSelector:
    matchLabels:
      {{- include "gpuloom.selector" .root | nindent 6 }}
    matchExpressions:
      - key: app.kubernetes.io/component
        operator: In
        values: [{{ join ", " .components }}]
  policyTypes: [Ingress, Egress]
  ingress: []
  egress:
    {{- default "[]" .egress | nindent 4 }}
{{- end -}}

{{/* Work on every node, once, by the pods of a DaemonSet, whose spec this is: one is ready when its node is done. Takes
     (dict "root" $ "work" "drain" or "removal") and, where it is not the release's, "serviceAccount". */}}
{{- define "gpuloom.nodeWork" -}}
selector:
  matchLabels:
    {{- include "gpuloom.selector" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .work }}
updateStrategy:
  type: RollingUpdate
  # Every node at once: none waits for one that is slow.
  rollingUpdate:
    maxUnavailable: 100%
template:
  metadata:
    labels:
      {{- include "gpuloom.selector" .root | nindent 6 }}
      app.kubernetes.io/component: {{ .work }}
      {{- with include "gpuloom.hookPodLabels" (merge (dict "component" "schedulers") .) }}
      {{- . | nindent 6 }}
      {{- end }}
    {{- with include "gpuloom.podSetting" (merge (dict "component" "schedulers" "key" "podAnnotations") .) }}
    annotations:
      {{- . | nindent 6 }}
    {{- end }}
  spec:
    # Where the schedulers are or were.
    {{- include "gpuloom.podPlacement" (merge (dict "component" "schedulers") .) | nindent 4 }}
    terminationGracePeriodSeconds: 1
    initContainers:
      - name: work
        image: {{ include "gpuloom.image" .root | quote }}
        imagePullPolicy: {{ .root.Values.image.pullPolicy }}
        command: [/bin/bash, -c]
        args:
          - |
            {{- .root.Files.Get (eq .work "drain" | ternary "scripts/drain-node.sh" "scripts/remove-state.sh") | nindent 12 }}
          - {{ .work }}
          - {{ .root.Values.stateDir }}
          {{- if eq .work "removal" }}
          - {{ .root.Values.kubeletDir }}/device-plugins
          {{- end }}
        securityContext:
          {{- include "gpuloom.securityContext" dict | nindent 10 }}
        resources:
          {{- include "gpuloom.hookResources" .root | nindent 10 }}
        volumeMounts:
          {{- if eq .work "removal" }}
          - name: device-plugins
            mountPath: {{ .root.Values.kubeletDir }}/device-plugins
          {{- end }}
          - name: state
            mountPath: {{ .root.Values.stateDir }}
    containers:
      # Nothing is left to do: ready.
      - name: done
        image: {{ include "gpuloom.image" .root | quote }}
        imagePullPolicy: {{ .root.Values.image.pullPolicy }}
        command: [/bin/sleep, infinity]
        securityContext:
          {{- include "gpuloom.securityContext" dict | nindent 10 }}
        resources:
          {{- include "gpuloom.hookResources" .root | nindent 10 }}
    volumes:
      {{- if eq .work "removal" }}
      - name: device-plugins
        hostPath:
          path: {{ .root.Values.kubeletDir }}/device-plugins
          type: Directory
      {{- end }}
      - name: state
        hostPath:
          path: {{ .root.Values.stateDir }}
          type: DirectoryOrCreate
{{- end -}}
