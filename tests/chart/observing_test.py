#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the chart makes for those who watch: the metrics' port, service, monitors, alerts and dashboard; and the network policy."""

import json
import pathlib
import tempfile
import unittest

import yaml
from rendering import CHART, Refusals, Rendering

OPERATOR = ["-apis", ",".join(f"monitoring.coreos.com/v1/{kind}" for kind in ("PodMonitor", "ServiceMonitor", "PrometheusRule"))]
SELECTED = {"app.kubernetes.io/name": "gpuloom", "app.kubernetes.io/instance": "gpuloom", "app.kubernetes.io/component": "agent"}
MONITORS = {"podMonitor": ("PodMonitor", "podMetricsEndpoints"), "serviceMonitor": ("ServiceMonitor", "endpoints")}
HEADS = {"podMonitor": ("PodMonitor", "gpuloom-metrics"), "serviceMonitor": ("ServiceMonitor", "gpuloom-metrics"),
         "prometheusRule": ("PrometheusRule", "gpuloom-alerts"), "grafanaDashboard": ("ConfigMap", "gpuloom-dashboard"),
         "service": ("Service", "gpuloom-metrics")}
RELABELING = [{"sourceLabels": ["__meta_kubernetes_pod_label_zone"], "targetLabel": "zone"}]
WRONG = [({"metrics": {"port": 0}}, r"metrics.port: 0 is less than"), ({"metrics": {"port": 70000}}, r"metrics.port: 70000 is greater"),
         ({"metrics": {"podMonitor": {"enabled": "yes"}}}, r"metrics.podMonitor.enabled: 'yes' is not one of \[True, False, 'auto'\]"),
         ({"metrics": {"serviceMonitor": {"interval": "often"}}}, r"metrics.serviceMonitor.interval: 'often' does not match"),
         ({"metrics": {"prometheusRule": {"namespace": "A"}}}, r"metrics.prometheusRule.namespace: 'A' does not match"),
         ({"metrics": {"grafanaDashboard": {"labels": {"a": 1}}}}, r"metrics.grafanaDashboard.labels.a: 1 is not of type 'string'"),
         ({"networkPolicy": {"metricsFrom": [{}]}}, r"networkPolicy.metricsFrom.0: \{\} .*"),
         ({"networkPolicy": {"metricsFrom": [{"namespace": "a"}]}}, r"networkPolicy.metricsFrom.0: Additional properties .*'namespace'"),
         ({"networkPolicy": {"metricsFrom": [{"ipBlock": {}}]}}, r"networkPolicy.metricsFrom.0.ipBlock: 'cidr' is a required property")]


# Of which kinds there are objects, whatever is observed.
ALWAYS = {"ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet", "Pod", "ServiceAccount"}


def Agent(manifests):
    return manifests["DaemonSet", "gpuloom-agent"]["spec"]["template"]["spec"]["containers"][0]


def Selects(selector, labels):
    """Whether a policy's podSelector means a pod with these labels."""
    return selector["matchLabels"].items() <= labels.items() and all(
        rule["operator"] == "In" and labels.get(rule["key"]) in rule["values"] for rule in selector.get("matchExpressions", []))


class Observing(unittest.TestCase):
    def Render(self, metrics, *flags, **others):
        values = {"metrics": metrics, **others}
        self.assertEqual(Refusals(values), [])
        return RENDERING.Render(values, *flags)[0]

    def test_by_default_only_the_port_is_there(self):
        manifests, _ = RENDERING.Render({}, *OPERATOR)
        self.assertIn("--metrics-address=:9464", Agent(manifests)["args"])
        self.assertEqual(Agent(manifests)["ports"], [{"name": "metrics", "containerPort": 9464, "protocol": "TCP"}])
        kinds = {kind for kind, _ in manifests}
        self.assertEqual(kinds, ALWAYS)
        schedulers = manifests["DaemonSet", "gpuloom-schedulers"]["spec"]["template"]["spec"]["containers"][0]
        self.assertNotIn("ports", schedulers)
        self.assertNotIn("metrics", " ".join(schedulers["args"]))

    def test_another_port(self):
        manifests = self.Render({"port": 9999, "service": {"enabled": True}})
        self.assertIn("--metrics-address=:9999", Agent(manifests)["args"])
        self.assertEqual(Agent(manifests)["ports"][0]["containerPort"], 9999)
        self.assertEqual(manifests["Service", "gpuloom-metrics"]["spec"]["ports"][0]["port"], 9999)

    def test_names_by_which_agents_may_be_asked(self):
        def Hosts(metrics):
            return [arg for arg in Agent(self.Render(metrics))["args"] if arg.startswith("--metrics-hosts")]

        self.assertEqual(Hosts({}), [])
        names = ["gpus.example.com", "*.svc.example.org"]
        self.assertEqual(Hosts({"hosts": names}), ["--metrics-hosts=gpus.example.com,*.svc.example.org"])
        own = "--metrics-hosts=gpuloom-metrics.gpuloom-system"
        self.assertEqual(Hosts({"service": {"enabled": True}}), [own])
        self.assertEqual(Hosts({"serviceMonitor": {"enabled": True}, "hosts": names}), [own + ",gpus.example.com,*.svc.example.org"])
        for name in ("", "*", "a:80", "http://a", "a,b", "a."):
            self.assertNotEqual(Refusals({"metrics": {"hosts": [name]}}), [], name)

    def test_without_metrics_there_is_nothing_of_them(self):
        everything = {name: {"enabled": True} for name in HEADS if name != "serviceMonitor"}
        manifests = self.Render({"enabled": False, **everything}, *OPERATOR)
        self.assertNotIn("ports", Agent(manifests))
        self.assertNotIn("metrics", " ".join(Agent(manifests)["args"]))
        self.assertEqual({kind for kind, _ in manifests}, ALWAYS)
        self.assertNotIn(("ConfigMap", "gpuloom-dashboard"), manifests)

    def test_the_service_has_all_agents(self):
        spec = self.Render({"service": {"enabled": True}})["Service", "gpuloom-metrics"]["spec"]
        self.assertEqual((spec["clusterIP"], spec["publishNotReadyAddresses"], spec["selector"]), ("None", True, SELECTED))
        self.assertEqual(spec["ports"], [{"name": "metrics", "port": 9464, "targetPort": "metrics", "protocol": "TCP"}])

    def test_the_heads_of_the_objects(self):
        for value, (kind, name) in HEADS.items():
            settings = {"enabled": True, "labels": {"team": "b", "release": "kps"}, "annotations": {"a": "b"}}
            if value != "service":
                settings["namespace"] = "monitoring"
            manifests = self.Render({value: settings}, commonLabels={"team": "a", "tier": "node"})
            metadata = manifests[kind, name]["metadata"]
            self.assertEqual(metadata["namespace"], settings.get("namespace", "gpuloom-system"))
            self.assertLessEqual({"team": "b", "release": "kps", "tier": "node", **SELECTED}.items(), metadata["labels"].items())
            self.assertEqual(metadata["annotations"], {"a": "b"})
            plain = self.Render({value: {"enabled": True}})[kind, name]["metadata"]
            self.assertEqual(plain["namespace"], "gpuloom-system")
            self.assertNotIn("annotations", plain)

    def test_objects_of_the_operator_are_made_where_it_is_or_where_it_must_be(self):
        for value in ("podMonitor", "serviceMonitor", "prometheusRule"):
            for enabled, flags, is_made in [(False, OPERATOR, False), (True, [], True), (True, OPERATOR, True), ("auto", OPERATOR, True),
                                            ("auto", [], False)]:
                manifests = self.Render({value: {"enabled": enabled}}, *flags)
                self.assertEqual(HEADS[value] in manifests, is_made, (value, enabled, flags))

    def test_notes_say_what_auto_did_not_find(self):
        _, text = RENDERING.Render({"metrics": {"prometheusRule": {"enabled": "auto"}}})
        self.assertIn("no PrometheusRule was made: the cluster does not know monitoring.coreos.com/v1", text)
        _, text = RENDERING.Render({"metrics": {"prometheusRule": {"enabled": "auto"}}}, *OPERATOR)
        self.assertNotIn("was made", text)

    def test_a_monitor_finds_the_agents(self):
        for value, (kind, endpoints) in MONITORS.items():
            settings = {"enabled": True, "interval": "15s", "scrapeTimeout": "10s", "relabelings": RELABELING,
                        "metricRelabelings": [{"action": "drop"}]}
            manifests = self.Render({value: settings})
            spec = manifests[kind, "gpuloom-metrics"]["spec"]
            self.assertEqual(spec["selector"]["matchLabels"], SELECTED)
            self.assertEqual(spec["namespaceSelector"], {"matchNames": ["gpuloom-system"]})
            [endpoint] = spec[endpoints]
            self.assertEqual((endpoint["port"], endpoint["path"], endpoint["honorLabels"]), ("metrics", "/metrics", True))
            self.assertEqual((endpoint["interval"], endpoint["scrapeTimeout"]), ("15s", "10s"))
            # No label of a target changes with its node's agent: else each agent would begin new series.
            node = ["__meta_kubernetes_pod_node_name"]
            self.assertEqual(endpoint["relabelings"][:3], [{"sourceLabels": node, "targetLabel": "node"},
                                                           {"sourceLabels": node, "targetLabel": "instance"},
                                                           {"action": "labeldrop", "regex": "pod|container|endpoint"}])
            self.assertEqual(endpoint["relabelings"][3:], RELABELING)
            self.assertEqual(endpoint["metricRelabelings"], [{"action": "drop"}])
            if value == "serviceMonitor":  # it selects a Service, so there is one that has these labels
                self.assertLessEqual(SELECTED.items(), manifests["Service", "gpuloom-metrics"]["metadata"]["labels"].items())
            [endpoint] = self.Render({value: {"enabled": True}})[kind, "gpuloom-metrics"]["spec"][endpoints]
            self.assertEqual(set(endpoint), {"port", "path", "honorLabels", "relabelings"})

    def test_two_monitors_are_refused(self):
        ended = RENDERING.Run({"metrics": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}})
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("are both enabled: Prometheus would count everything twice", ended.stderr)

    def test_alerts(self):
        groups = yaml.safe_load((CHART / "alerts/gpuloom.yaml").read_text())["groups"]
        made = self.Render({"prometheusRule": {"enabled": True}})["PrometheusRule", "gpuloom-alerts"]["spec"]["groups"]
        for rule in (0, 1):  # They name the jobs of the chart's monitors.
            made[0]["rules"][rule]["expr"] = groups[0]["rules"][rule]["expr"]
        self.assertEqual(made, groups)
        manifests, _ = RENDERING.Render({"fullnameOverride": "own", "metrics": {"prometheusRule": {
            "enabled": True, "disabled": ["GpuloomNoSlots"], "ruleLabels": {"severity": "page", "team": "gpu"}}}})
        rules = [rule for group in manifests["PrometheusRule", "own-alerts"]["spec"]["groups"] for rule in group["rules"]]
        self.assertEqual(len(rules), sum(len(group["rules"]) for group in groups) - 1)
        self.assertNotIn("GpuloomNoSlots", [rule["alert"] for rule in rules])
        for rule in rules:
            self.assertEqual(rule["labels"], {"severity": "page", "team": "gpu"})
        self.assertEqual(rules[0]["expr"], 'up{job=~"(.*/)?own-metrics"} == 0')
        ended = RENDERING.Run({"metrics": {"prometheusRule": {"enabled": True, "disabled": ["NoSlots"]}}})
        self.assertIn("metrics.prometheusRule.disabled: there is no alert NoSlots; there are GpuloomAgentDown, ", ended.stderr)

    def test_the_dashboard_is_the_charts(self):
        made = self.Render({"grafanaDashboard": {"enabled": True}})["ConfigMap", "gpuloom-dashboard"]
        self.assertEqual(made["metadata"]["labels"]["grafana_dashboard"], "1")
        self.assertEqual(json.loads(made["data"]["gpuloom.json"]), json.loads((CHART / "dashboards/gpuloom.json").read_text()))

    def test_the_network_is_closed_but_for_metrics(self):
        peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
        egress = [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]
        port = [{"port": 9464, "protocol": "TCP"}]
        server = [{"ports": [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]}]
        for settings, metrics, ingress, out in [({}, {}, [{"ports": port}], []),
                                                ({"metricsFrom": peers, "egress": egress}, {}, [{"ports": port, "from": peers}], egress),
                                                ({"metricsFrom": peers}, {"enabled": False}, [], [])]:
            manifests = self.Render(metrics, networkPolicy={"enabled": True, **settings})
            agent = manifests["NetworkPolicy", "gpuloom-agent"]["spec"]
            self.assertEqual((agent["ingress"], agent["egress"], agent["policyTypes"]), (ingress, out + server, ["Ingress", "Egress"]))
            silent = self.Render(metrics, networkPolicy={"enabled": True, **settings}, events={"enabled": False})
            self.assertEqual(silent["NetworkPolicy", "gpuloom-agent"]["spec"]["egress"], out)
            self.assertEqual(agent["podSelector"]["matchLabels"], SELECTED)
            schedulers = manifests["NetworkPolicy", "gpuloom-schedulers"]["spec"]
            self.assertEqual((schedulers["ingress"], schedulers["egress"]), ([], []))
            self.assertEqual(schedulers["podSelector"]["matchLabels"]["app.kubernetes.io/component"], "schedulers")

    def test_pods_that_work_on_their_node_alone_have_no_network(self):
        for values in ({}, {"removeState": True}, {"events": {"enabled": False}}):
            manifests = self.Render({}, networkPolicy={"enabled": True, "egress": [{"ports": [{"port": 16443}]}]}, **values)
            spec = manifests["NetworkPolicy", "gpuloom-closed"]["spec"]
            self.assertEqual((spec["ingress"], spec["egress"], spec["policyTypes"]), ([], [], ["Ingress", "Egress"]))
            pods = [manifest["metadata"] if kind == "Pod" else manifest["spec"]["template"]["metadata"]
                    for (kind, _), manifest in manifests.items() if kind in ("Pod", "DaemonSet")]
            closed = {pod["labels"]["app.kubernetes.io/component"] for pod in pods if Selects(spec["podSelector"], pod["labels"])}
            self.assertEqual(closed, {"removal"} if values.get("removeState") else {"test"})
            # None of ours is forgotten.
            policies = [manifest["spec"]["podSelector"] for (kind, _), manifest in manifests.items() if kind == "NetworkPolicy"]
            for pod in pods:
                self.assertEqual(sum(Selects(selector, pod["labels"]) for selector in policies), 1, pod)
        self.assertNotIn("NetworkPolicy", {kind for kind, _ in self.Render({})})

    def test_events_need_rights_and_a_token_and_nothing_else_does(self):
        for enabled in (True, False):
            manifests = self.Render({}, events={"enabled": enabled})
            agent, schedulers = (manifests["DaemonSet", f"gpuloom-{of}"]["spec"]["template"]["spec"] for of in ("agent", "schedulers"))
            self.assertIs(agent["automountServiceAccountToken"], enabled)
            self.assertIs(schedulers["automountServiceAccountToken"], False)
            container = agent["containers"][0]
            self.assertEqual("--events" in container["args"], enabled)
            self.assertEqual("--node-name=$(GPULOOM_NODE_NAME)" in container["args"], enabled)
            names = [name for kind, name in manifests if kind in ("ClusterRole", "ClusterRoleBinding")]
            self.assertEqual(len(set(names)), 1 if enabled else 0, names)
            self.assertEqual(len(names), 2 if enabled else 0)
            if enabled:
                rules = manifests["ClusterRole", names[0]]["rules"]
                self.assertEqual([(rule["resources"], rule["verbs"]) for rule in rules],
                                 [(["events"], ["create", "patch"]), (["pods"], ["get"])])
                subject = manifests["ClusterRoleBinding", names[0]]["subjects"][0]
                self.assertEqual(subject["name"], agent["serviceAccountName"])

    def test_what_is_wrong_is_said_with_its_place(self):
        for values, message in WRONG:
            with self.subTest(values):
                self.assertRegex("\n".join(Refusals(values)), message)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_name:
        RENDERING = Rendering(pathlib.Path(folder_name))
        unittest.main()
