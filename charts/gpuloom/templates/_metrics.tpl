{{/* The port of the agents' metrics; nothing where they are off. A value that is missing has its default: it is one of a
     release that is upgraded with --reuse-values. */}}
{{- define "gpuloom.metricsPort" -}}
{{- $metrics := default dict .Values.metrics -}}
{{- if dig "enabled" true $metrics -}}
{{- dig "port" 9464 $metrics -}}
{{- end -}}
{{- end -}}

{{/* (dict "root" $ "kind" "PodMonitor" "value" "podMonitor"): "yes" where such an object is to be made, "missing" where it is
     to be made if the cluster knows the kind, and does not. */}}
{{- define "gpuloom.makes" -}}
{{- $enabled := dig .value "enabled" false (default dict .root.Values.metrics) -}}
{{- if include "gpuloom.metricsPort" .root | not -}}
{{- else if eq (toString $enabled) "true" -}}
yes
{{- else if eq (toString $enabled) "auto" -}}
{{- ternary "yes" "missing" (.root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind)) -}}
{{- end -}}
{{- end -}}

{{/* Names by which agents may be asked, beyond those that they always answer: the short one of their Service, and the value's. */}}
{{- define "gpuloom.metricsHosts" -}}
{{- $metrics := default dict .Values.metrics -}}
{{- $hosts := dig "hosts" list $metrics -}}
{{- if or (dig "service" "enabled" false $metrics) (eq (include "gpuloom.makes" (dict "root" . "kind" "ServiceMonitor" "value" "serviceMonitor")) "yes") -}}
{{- $hosts = prepend $hosts (printf "%s-metrics.%s" (include "gpuloom.fullname" .) .Release.Namespace) -}}
{{- end -}}
{{- join "," $hosts -}}
{{- end -}}

{{/* The head of an object for Prometheus's operator or Grafana: (dict "root" $ "settings" VALUES "name" SUFFIX). */}}
{{- define "gpuloom.metricsMetadata" -}}
name: {{ include "gpuloom.fullname" .root }}-{{ .name }}
namespace: {{ default .root.Release.Namespace .settings.namespace }}
labels:
  {{- include "gpuloom.moreLabels" (dict "root" .root "labels" .settings.labels) | nindent 2 }}
  app.kubernetes.io/component: agent
{{- with .settings.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What is scraped, for a PodMonitor's and a ServiceMonitor's endpoint. */}}
{{- define "gpuloom.metricsEndpoint" -}}
port: metrics
path: /metrics
{{- with .interval }}
interval: {{ . }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
# The tenants' namespace, pod and container are the metrics' own labels, not those of the agent's pod.
honorLabels: true
relabelings:
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: node
  # An agent's figures go on with its node's next agent, and so must their series: no label may name the pod.
  - sourceLabels: [__meta_kubernetes_pod_node_name]
    targetLabel: instance
  - action: labeldrop
    regex: pod|container|endpoint
  {{- with .relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
