#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chart's alerts, by promtool: none fires on a healthy node, and each fires, alone, on what it is about. And every metric
and label that alerts and dashboard ask for is in docs/metrics.md.
"""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml
from rendering import CHART, ROOT

RULES = CHART / "alerts/gpuloom.yaml"
DASHBOARD = CHART / "dashboards/gpuloom.json"
METRICS = ROOT / "docs/metrics.md"

GPU = 'job="gpuloom-system/gpuloom-metrics",instance="10.0.0.1:9464",gpu="GPU-1"'
AGENT = 'job="gpuloom-system/gpuloom-metrics",instance="10.0.0.1:9464"'
OTHER_AGENT = 'job="gpuloom-system/gpuloom-metrics",instance="10.0.0.2:9464"'
OTHER_GPU = 'job="gpuloom-system/gpuloom-metrics",instance="10.0.0.2:9464",gpu="GPU-2"'
TENANT = f'{GPU},namespace="team-a",pod="train-7",container="main"'
NAMESPACE = f'{AGENT},namespace="team-a"'
DOMAIN = f'{GPU},trust_domain="team-a"'

# A healthy node for two hours, one value a minute: {series: values}.
HEALTHY = {
    f"up{{{AGENT}}}": "1x120",
    'up{job="prometheus",instance="localhost:9090"}': "0x120",
    f"gpuloom_build_info{{{AGENT}}}": "1x120",
    # Another node's.
    f"gpuloom_build_info{{{OTHER_AGENT}}}": "1x120",
    f"gpuloom_kubelet_watches{{{AGENT}}}": "1x120",
    f"gpuloom_policy_error{{{AGENT}}}": "0x120",
    f"gpuloom_policy_in_force{{{AGENT}}}": "1x120",
    f"gpuloom_policy_rules_impossible{{{GPU}}}": "0x120",
    f"gpuloom_policy_grants_failed{{{AGENT}}}": "0x120",
    f"gpuloom_gpu_scheduler_up{{{GPU}}}": "1x120",
    f"gpuloom_gpu_healthy{{{GPU}}}": "1x120",
    f"gpuloom_node_gpu_unusable{{{AGENT}}}": "0x120",
    f'gpuloom_gpu_state{{{GPU},state="drained"}}': "0x120",
    f'gpuloom_gpu_state{{{GPU},state="sick"}}': "0x120",
    f'gpuloom_gpu_state{{{GPU},state="unavailable"}}': "0x120",
    f"gpuloom_gpu_scheduler_restarts_total{{{GPU}}}": "1x120",
    f"gpuloom_gpu_slots{{{GPU}}}": "10x120",
    f"gpuloom_gpu_slots_allocated{{{GPU}}}": "9x120",
    f"gpuloom_gpu_slots_beyond{{{GPU}}}": "0x120",
    f"gpuloom_gpu_slots_withheld{{{GPU}}}": "0x120",
    # Another, of another node, which has a slot when this one has none.
    f"gpuloom_gpu_healthy{{{OTHER_GPU}}}": "1x120",
    f"gpuloom_gpu_slots{{{OTHER_GPU}}}": "5x120",
    f"gpuloom_gpu_slots_allocated{{{OTHER_GPU}}}": "4x120",
    f"gpuloom_gpu_slots_beyond{{{OTHER_GPU}}}": "0x120",
    f"gpuloom_gpu_slots_withheld{{{OTHER_GPU}}}": "0x120",
    f"gpuloom_domain_executors_failed_total{{{DOMAIN}}}": "3x120",
    f"gpuloom_domain_executors_lost_total{{{DOMAIN}}}": "2x120",
    f'gpuloom_kubelet_refusals_total{{{AGENT},call="GetPreferredAllocation"}}': "0x60 1x60",
    f'gpuloom_kubelet_refusals_total{{{AGENT},call="Allocate"}}': "0x120",
    # The policy's refusals are retried by the kubelet: no pod fails.
    f'gpuloom_kubelet_refusals_total{{{AGENT},call="PreStartContainer"}}': "0+10x120",
    f"gpuloom_tenant_memory_used_bytes{{{TENANT}}}": "95x120",
    f"gpuloom_tenant_memory_quota_bytes{{{TENANT}}}": "100x120",
    f'gpuloom_tenant_refusals_total{{{TENANT},kind="memory"}}': "7x120",
    f'gpuloom_tenant_refusals_total{{{TENANT},kind="session"}}': "0+1x120",
    f"gpuloom_tenant_memory_waiting{{{TENANT}}}": "0x120",
    f"gpuloom_tenant_suspended{{{TENANT}}}": "0x120",
    f"gpuloom_tenant_partition_pending{{{TENANT}}}": "0x120",
    f"gpuloom_tenant_throttled_seconds_sum{{{TENANT}}}": "0+6x120",
    f'gpuloom_namespace_faults_total{{{NAMESPACE},kind="broke_protocol"}}': "1x120",
    f'gpuloom_namespace_faults_total{{{NAMESPACE},kind="lost_device"}}': "5x120",
    f'gpuloom_namespace_faults_total{{{NAMESPACE},kind="did_not_drain"}}': "0x120",
    f'gpuloom_namespace_faults_total{{{NAMESPACE},kind="long_kernel"}}': "0x120",
    # A neighbour's fault.
    f'gpuloom_namespace_faults_total{{{NAMESPACE},kind="lost_executor"}}': "0+1x120",
}
# {alert: (what is different from the 61st minute on, {the minute: whether it fires})}
SICK = {
    "GpuloomAgentDown": ({f"up{{{AGENT}}}": "1x59 0x60"}, {63: False, 66: True}),
    # One node's agent has no pod that could be asked, another's has.
    "GpuloomAgentGone": ({f"up{{{AGENT}}}": "1x59 stale", f"gpuloom_build_info{{{AGENT}}}": "1x59 stale"},
                         {68: False, 72: True, 110: True}),
    "GpuloomNoMetrics": ({f"gpuloom_build_info{{{AGENT}}}": "1x59 stale", f"gpuloom_build_info{{{OTHER_AGENT}}}": "1x59 stale"}, {74: False, 77: True}),
    "GpuloomNotRegistered": ({f"gpuloom_kubelet_watches{{{AGENT}}}": "1x59 0x60"}, {63: False, 66: True}),
    "GpuloomSchedulerDown": ({f"gpuloom_gpu_scheduler_up{{{GPU}}}": "1x59 0x60", f"gpuloom_gpu_healthy{{{GPU}}}": "1x59 0x60"},
                             {61: False, 63: True, 100: True}),
    "GpuloomSchedulerRestarted": ({f"gpuloom_gpu_scheduler_restarts_total{{{GPU}}}": "1x59 2x60"}, {59: False, 61: True, 80: False}),
    "GpuloomGpuUnhealthy": ({f"gpuloom_gpu_healthy{{{GPU}}}": "1x59 0x60"}, {63: False, 66: True}),
    "GpuloomGpuUnusable": ({f"gpuloom_node_gpu_unusable{{{AGENT}}}": "0x59 1x60"}, {63: False, 66: True}),
    "GpuloomExecutorsFail": ({f"gpuloom_domain_executors_failed_total{{{DOMAIN}}}": "3x59 4 5 6 7 7x56"}, {61: False, 66: True, 90: False}),
    "GpuloomExecutorsLost": ({f"gpuloom_domain_executors_lost_total{{{DOMAIN}}}": "2x59 3x60"}, {59: False, 61: True, 80: False}),
    "GpuloomPolicyError": ({f"gpuloom_policy_error{{{AGENT}}}": "0x59 1x60"}, {63: False, 66: True}),
    "GpuloomPolicyPartly": ({f"gpuloom_policy_rules_impossible{{{GPU}}}": "0x59 2x60"}, {63: False, 66: True}),
    "GpuloomPolicyNotGranted": ({f"gpuloom_policy_grants_failed{{{AGENT}}}": "0x59 1x60"}, {63: False, 66: True}),
    "GpuloomPartitionPending": ({f"gpuloom_tenant_partition_pending{{{TENANT}}}": "0x59 1x60"}, {68: False, 71: True}),
    "GpuloomNoPolicy": ({f"gpuloom_policy_in_force{{{AGENT}}}": "1x59 0x60"}, {63: False, 66: True}),
    "GpuloomNoSlots": ({f"gpuloom_gpu_slots_allocated{{{GPU}}}": "9x59 10x60", f"gpuloom_gpu_slots_allocated{{{OTHER_GPU}}}": "4x59 5x60"},
                       {73: False, 76: True}),
    "GpuloomPodsRefused": ({f'gpuloom_kubelet_refusals_total{{{AGENT},call="GetPreferredAllocation"}}': "0x59 0+2x60"}, {61: False, 66: True}),
    "GpuloomQuotaPressure": ({f'gpuloom_tenant_refusals_total{{{TENANT},kind="memory"}}': "7x59 8+1x60"}, {68: False, 75: True}),
    "GpuloomMemoryWaits": ({f"gpuloom_tenant_memory_waiting{{{TENANT}}}": "0x59 2x60"}, {68: False, 71: True}),
    "GpuloomThrottled": ({f"gpuloom_tenant_throttled_seconds_sum{{{TENANT}}}": "0+6x59 354+50x60"}, {90: False, 110: True}),
    "GpuloomSuspended": ({f"gpuloom_tenant_suspended{{{TENANT}}}": "0x9 1x110"}, {9: False, 68: False, 72: True}),
    "GpuloomFaults": ({f'gpuloom_namespace_faults_total{{{NAMESPACE},kind="did_not_drain"}}': "0x59 1x60"}, {59: False, 61: True, 80: False}),
    "GpuloomProtocolBroken": ({f'gpuloom_namespace_faults_total{{{NAMESPACE},kind="broke_protocol"}}': "1x59 2x60"}, {59: False, 61: True}),
}
# What is said of slots that are free and cannot be had, and of those that are: (what is different from the beginning, how many
# are free, how many GPUs are sick).
OF_SLOTS = {
    "nothing is different": ({}, 2, 0),
    "a GPU holds twice its slots since their number was lowered, the other one has none in use":
        ({f"gpuloom_gpu_slots{{{GPU}}}": "5x120", f"gpuloom_gpu_slots_allocated{{{GPU}}}": "10x120",
          f"gpuloom_gpu_slots_beyond{{{GPU}}}": "5x120", f"gpuloom_gpu_slots_allocated{{{OTHER_GPU}}}": "0x120"}, 5, 0),
    "a slot of those that are left is free again, and others are still held beyond them":
        ({f"gpuloom_gpu_slots{{{GPU}}}": "5x120", f"gpuloom_gpu_slots_beyond{{{GPU}}}": "5x120",
          f"gpuloom_gpu_slots_allocated{{{OTHER_GPU}}}": "5x120"}, 1, 0),
    "no memory is left for the free ones":
        ({f"gpuloom_gpu_slots_withheld{{{GPU}}}": "1x120", f"gpuloom_gpu_slots_withheld{{{OTHER_GPU}}}": "1x120"}, 0, 0),
    "the one with free slots is drained":
        ({f"gpuloom_gpu_slots_allocated{{{OTHER_GPU}}}": "5x120", f"gpuloom_gpu_healthy{{{GPU}}}": "0x120",
          f'gpuloom_gpu_state{{{GPU},state="drained"}}': "1x120"}, 0, 0),
    "the one with free slots is sick":
        ({f"gpuloom_gpu_slots_allocated{{{OTHER_GPU}}}": "5x120", f"gpuloom_gpu_healthy{{{GPU}}}": "0x120",
          f'gpuloom_gpu_state{{{GPU},state="sick"}}': "1x120"}, 0, 1),
    "its scheduler is gone, and its node has another that has no state":
        ({f"gpuloom_gpu_healthy{{{GPU}}}": "0x120", f'gpuloom_gpu_state{{{GPU},state="unavailable"}}': "1x120",
          f"gpuloom_node_gpu_unusable{{{AGENT}}}": "1x120"}, 1, 2),
}
# What Prometheus knows of whom it asks.
OF_A_TARGET = {"job", "instance"}
# What it makes of a histogram.
OF_HISTOGRAMS = re.compile(r"_(?:bucket|sum|count)$")


def Firing(minute, alerts):
    return {"expr": 'count by (alertname) (ALERTS{alertstate="firing"})', "eval_time": f"{minute}m",
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in alerts]}


def Series(values):
    return [{"series": name, "values": text} for name, text in values.items()]


def Promtool(*arguments):
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, check=False)


def Names(text):
    return {OF_HISTOGRAMS.sub("", name) for name in re.findall(r"\bgpuloom_[a-z0-9_]+", text)}


def Expressions():
    """(where, PromQL) of everything that is asked."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"]
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']}", target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["query"]["query"]


class Alerts(unittest.TestCase):
    def setUp(self):
        if not shutil.which("promtool"):
            self.fail("no promtool: run deploy/install-deps.sh")

    def test_they_are_rules(self):
        checked = Promtool("check", "rules", RULES)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_each_says_what_to_do(self):
        for group in yaml.safe_load(RULES.read_text())["groups"]:
            for rule in group["rules"]:
                self.assertEqual(set(rule["annotations"]), {"summary", "description"}, rule["alert"])
                self.assertIn(rule["labels"]["severity"], ("critical", "warning", "info"))

    def test_each_has_its_section_in_the_guide(self):
        text = (ROOT / "docs/operations.md").read_text()
        shown = re.findall(r"`(Gpuloom\w+)`", text[text.index("## Alerts"):])
        self.assertEqual(sorted(shown), sorted(SICK))

    def test_each_fires_alone_on_what_it_is_about(self):
        known = [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
        self.assertEqual(sorted(SICK), sorted(known))
        tests = [{"interval": "1m", "input_series": Series(HEALTHY), "promql_expr_test": [Firing(minute, []) for minute in (30, 119)]}]
        for alert, (different, minutes) in SICK.items():
            self.assertLessEqual(set(different), set(HEALTHY), alert)
            tests.append({"interval": "1m", "input_series": Series(HEALTHY | different), "promql_expr_test": [
                Firing(minute, [alert] if fires else []) for minute, fires in minutes.items()]})
        self.CheckRules(tests)

    def CheckRules(self, tests):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "alerts.yaml")
            path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
            tested = Promtool("test", "rules", path)
        self.assertEqual(tested.returncode, 0, tested.stdout + tested.stderr)

    def test_slots_that_nobody_can_have_are_not_free(self):
        """Neither for the alert nor for the dashboard."""
        dashboard = json.loads(DASHBOARD.read_text())
        [free], [sick] = ([panel["targets"][0]["expr"] for panel in dashboard["panels"] if panel["title"] == title]
                          for title in ("Free slots", "Sick GPUs"))
        for case, (different, free_slots, sick_gpus) in OF_SLOTS.items():
            self.assertLessEqual(set(different), set(HEALTHY), case)
            with self.subTest(case):
                self.CheckRules([{"interval": "1m", "input_series": Series(HEALTHY | different), "promql_expr_test": [
                    {"expr": 'count(ALERTS{alertname="GpuloomNoSlots",alertstate="firing"}) or vector(0)', "eval_time": "30m",
                     "exp_samples": [{"labels": "{}", "value": int(free_slots == 0)}]},
                    {"expr": free, "eval_time": "30m", "exp_samples": [{"labels": "{}", "value": free_slots}]},
                    {"expr": sick, "eval_time": "30m", "exp_samples": [{"labels": "{}", "value": sick_gpus}]}]}])

    def test_prometheus_takes_every_expression(self):
        """Grafana's own variables stand for what Grafana puts there."""
        rules = [{"record": "x", "expr": re.sub(r"\$__\w+", "5m", re.sub(r"\$(?!__)\w+", ".*", text))}
                 for where, text in Expressions() if not where.startswith("variable")]
        for number, rule in enumerate(rules):
            rule["record"] = f"x{number}"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "rules.yaml")
            path.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
            checked = Promtool("check", "rules", path)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_the_dashboard_is_one(self):
        dashboard = json.loads(DASHBOARD.read_text())
        variables = {variable["name"] for variable in dashboard["templating"]["list"]}
        panels = dashboard["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken = set()
        for panel in panels:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells
            if panel["type"] != "row":
                self.assertTrue(panel["description"] and panel["targets"], panel["title"])
            for target in panel.get("targets", []):
                self.assertEqual(target["datasource"]["uid"], "${datasource}")
                used = set(re.findall(r"\$([a-z]\w*)", target["expr"]))
                self.assertLessEqual(used, variables, panel["title"])

    def test_every_metric_and_label_is_one_of_ours(self):
        known = {}
        for name, labels in re.findall(r"^\| `(gpuloom_\w+)` \| \w+ \| ([^|]*)\|", METRICS.read_text(), re.MULTILINE):
            known[name] = set(re.findall(r"`(\w+)`", labels)) | OF_A_TARGET
        self.assertTrue(known)
        for where, text in Expressions():
            self.assertEqual(Names(text) - set(known), set(), where)
            for name, matchers in re.findall(r"\b(gpuloom_\w+)\{([^}]*)\}", text):
                used = set(re.findall(r"(\w+)(?:=~|=|!=|!~)\"", matchers))
                self.assertLessEqual(used, known[OF_HISTOGRAMS.sub("", name)], where)
            grouped = set(re.findall(r"\w+", " ".join(re.findall(r"\b(?:by|without|on) \(([^)]*)\)", text))))
            self.assertLessEqual(grouped, {"le"}.union(*(known[name] for name in Names(text))), where)


if __name__ == "__main__":
    unittest.main()
