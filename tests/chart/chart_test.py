#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the chart makes of its values where nobody changes many of them: where it runs, with which rights, and its notes."""

import pathlib
import tempfile
import unittest

import yaml
from rendering import ROOT, Rendering


def Render(**values):
    return CHART.Render(values)


def Pods(manifests):
    return [manifests["DaemonSet", f"gpuloom-{name}"]["spec"]["template"]["spec"] for name in ("agent", "schedulers")]


def Terms(pod):
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [term["matchExpressions"] for term in required["nodeSelectorTerms"]]


class Chart(unittest.TestCase):
    def test_both_daemon_sets_run_on_nodes_with_a_gpu(self):
        manifests, text = Render()
        for pod in Pods(manifests):
            terms = Terms(pod)
            self.assertIn([{"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]}], terms)
            self.assertIn([{"key": "feature.node.kubernetes.io/pci-10de.present", "operator": "In", "values": ["true"]}], terms)
            self.assertIn([{"key": "cloud.google.com/gke-accelerator", "operator": "Exists"}], terms)
        self.assertIn("kubectl label node NODE nvidia.com/gpu.present=true", text)

    def test_labels_can_be_added_and_dropped(self):
        manifests, _ = Render(gpuNodeLabels={"pool": "gpu", "nvidia.com/gpu.present": None})
        keys = [expressions[0]["key"] for expressions in Terms(Pods(manifests)[0])]
        self.assertIn("pool", keys)
        self.assertNotIn("nvidia.com/gpu.present", keys)

    def test_whoever_chooses_nodes_chooses_them_alone(self):
        own = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "mine", "operator": "Exists"}]}]}}}
        pods = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
        for values, expected in [({"softgpu": {"enabled": True}}, None), ({"nodeSelector": {"pool": "gpu"}}, None),
                                 ({"gpuNodeLabels": None}, None), ({"affinity": own}, own)]:
            manifests, text = Render(**values)
            for pod in Pods(manifests):
                self.assertEqual(pod.get("affinity"), expected, values)
            self.assertNotIn("kubectl label node", text, values)
        for pod in Pods(Render(affinity=pods)[0]):
            self.assertIn("podAffinity", pod["affinity"])
            self.assertGreater(len(Terms(pod)), 3)

    def test_rights_are_those_that_ending_other_users_takes(self):
        agent, schedulers = Pods(Render()[0])
        expected = {"runAsUser": 0, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}
        self.assertEqual(agent["containers"][0]["securityContext"], expected)
        expected["capabilities"]["add"] = ["SETUID", "SETGID", "KILL"]
        self.assertEqual(schedulers["containers"][0]["securityContext"], expected)
        self.assertNotIn("limits", schedulers["containers"][0]["resources"])

    def test_the_users_of_executors_reach_the_schedulers(self):
        for values in [{}, {"executorUsers": None}]:
            self.assertIn("--executor-users=auto", Pods(Render(**values)[0])[1]["containers"][0]["args"])
        pod = Pods(Render(executorUsers="70000-70009")[0])[1]
        self.assertIn("--executor-users=70000-70009", pod["containers"][0]["args"])

    def test_the_notes_blame_what_the_cluster_blames(self):
        _, text = Render(runtimeClassName="nvidia-cdi")
        self.assertIn('pod rejected: RuntimeClass "nvidia-cdi" not found', text)
        _, text = Render(softgpu={"enabled": True})
        self.assertNotIn("RuntimeClass", text)
        self.assertIn("violates PodSecurity", text)

    def test_the_notes_say_how_pods_can_wait(self):
        fails = "A pod for which no single GPU has room fails."
        self.assertIn(fails, Render()[1])
        _, text = Render(slotShapes=[4])
        self.assertNotIn(fails, text)
        self.assertIn("gpuloom.io/gpu-x4: 1", text)

    def test_the_policy_is_the_config_maps(self):
        policy = {"overcommit": True, "defaults": {"memory": "4GiB", "trustDomain": "true"}, "namespaces": {"123": {"memory": "2MiB"}}}
        manifests, _ = Render(policy=policy)
        self.assertEqual(yaml.safe_load(manifests["ConfigMap", "gpuloom-policy"]["data"]["policy.yaml"]), policy)


    def test_helm_test_runs_a_tenant_of_the_image(self):
        values = {"image": {"repository": "r.example/g", "tag": "1"}, "imagePullSecrets": [{"name": "s"}], "resourceName": "example.org/slot",
                  "agent": {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"pool": "gpu"}}}
        pod = Render(**values)[0]["Pod", "gpuloom-test"]
        self.assertEqual(pod["metadata"]["annotations"]["helm.sh/hook"], "test")
        spec = pod["spec"]
        self.assertEqual((spec["imagePullSecrets"], spec["nodeSelector"], spec["tolerations"]),
                         ([{"name": "s"}], {"pool": "gpu"}, [{"operator": "Exists"}]))
        [container] = spec["containers"]
        self.assertEqual(container["image"], "r.example/g:1")
        self.assertEqual(container["resources"]["limits"]["example.org/slot"], 1)
        # As namespaces with the restricted pod security standard want it: it is a tenant, and no more.
        context = container["securityContext"]
        self.assertEqual((context["runAsNonRoot"], context["allowPrivilegeEscalation"], context["capabilities"]), (True, False, {"drop": ["ALL"]}))
        self.assertFalse({"volumes", "hostNetwork", "runtimeClassName", "serviceAccountName"} & set(spec))
        [program] = container["command"]
        self.assertRegex((ROOT / "Dockerfile").read_text(), rf"build/release/\w+/{pathlib.Path(program).name} [^\n]*/opt/gpuloom/bin/")
        self.assertEqual(str(pathlib.Path(program).parent), "/opt/gpuloom/bin")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        CHART = Rendering(pathlib.Path(name))
        unittest.main()
