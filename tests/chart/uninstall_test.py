#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `helm uninstall` runs before and after it deletes the release: the hooks' objects, and the script that drains a node.
removal_test.py has the script that runs after it, node_test.py both with the real programs."""

import os
import pathlib
import subprocess
import tempfile
import unittest

import yaml
from rendering import CHART, Refusals, Rendering

SCRIPT = CHART / "scripts/drain-node.sh"
PATIENCE = 60
# In place of `gpuloom`: notes how it is called and answers, time after time, with the next of the answers beside it.
STAND_IN = """#!/bin/bash
echo "$@" >>"$(dirname "$0")/calls"
cd "$(dirname "$0")"
next=$(ls answers | head -n 1)
cat "answers/$next"
[[ $(ls answers | wc -l) == 1 ]] || rm "answers/$next"
exit "${next##*-}"
"""
TABLE = """GPU-1 is drained by operator: helm uninstall
NAMESPACE   POD       CONTAINER   GPU     SLOTS   PROCESSES   STATE
team-b      serve-1   main        GPU-1   2       1           runs
team-a      train-7   main        GPU-1   1       0           no process
team-a      train-7   side        GPU-1   1       0           no process
gpuloom: 3 tenants are still there, and nothing is taken from them: delete their pods, or wait with --wait
"""


def Hooks(values, *flags):
    """{(kind, name): manifest} of what uninstalling runs, by a cluster that is asked."""
    manifests, _ = RENDERING.Render(values, *RENDERING.Cluster(), *flags)
    return {key: manifest for key, manifest in manifests.items()
            if "delete" in manifest["metadata"].get("annotations", {}).get("helm.sh/hook", "")}


class Objects(unittest.TestCase):
    def test_each_phase_has_a_daemon_set_and_a_job_that_waits_for_it(self):
        hooks = Hooks({"stateDir": "/srv/g", "kubeletDir": "/srv/kubelet", "uninstallHooks": {"timeout": "90s"}, "logLevel": "error", "logFormat": "json"})
        self.assertEqual(len(hooks), 7)
        for work, phase in (("drain", "pre-delete"), ("removal", "post-delete")):
            daemon_set, job = hooks["DaemonSet", f"gpuloom-{work}"], hooks["Job", f"gpuloom-{work}"]
            self.assertEqual([made["metadata"]["annotations"]["helm.sh/hook"] for made in (daemon_set, job)], [phase, phase])
            [wait] = job["spec"]["template"]["spec"]["containers"]
            self.assertEqual(wait["args"], [f"--await-pods=gpuloom-{work}", "--await-timeout=90s", "--log-level=error", "--log-format=json"])
            self.assertEqual(job["spec"]["backoffLimit"], 0)
            pod = daemon_set["spec"]["template"]
            self.assertEqual(pod["metadata"]["labels"], daemon_set["spec"]["selector"]["matchLabels"])
            [container] = pod["spec"]["initContainers"]
            script = CHART / "scripts" / {"drain": "drain-node.sh", "removal": "remove-state.sh"}[work]
            self.assertEqual(container["args"][0].split(), script.read_text().split())
        self.assertEqual(hooks["DaemonSet", "gpuloom-drain"]["spec"]["template"]["spec"]["initContainers"][0]["args"][1:],
                         ["drain", "/srv/g"])
        self.assertEqual(hooks["DaemonSet", "gpuloom-removal"]["spec"]["template"]["spec"]["initContainers"][0]["args"][1:],
                         ["removal", "/srv/g", "/srv/kubelet/device-plugins"])

    def test_all_of_them_are_deleted_and_made_in_the_order_in_which_they_need_one_another(self):
        weights = {}
        for (kind, _), manifest in Hooks({}).items():
            annotations = manifest["metadata"]["annotations"]
            self.assertEqual(annotations["helm.sh/hook-delete-policy"], "before-hook-creation,hook-succeeded")
            weights.setdefault(kind, set()).add(int(annotations["helm.sh/hook-weight"]))
        order = ["ServiceAccount", "Role", "RoleBinding", "DaemonSet", "Job"]
        self.assertEqual(sorted(weights, key=lambda kind: weights[kind]), order)
        self.assertTrue(all(len(found) == 1 for found in weights.values()), weights)

    def test_only_the_jobs_have_rights_and_few(self):
        hooks = Hooks({})
        self.assertEqual(hooks["Role", "gpuloom-uninstall"]["rules"], [
            {"apiGroups": ["apps"], "resources": ["daemonsets"], "resourceNames": ["gpuloom-drain", "gpuloom-removal"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}])
        for (kind, _), manifest in hooks.items():
            if kind not in ("DaemonSet", "Job"):
                continue
            pod = manifest["spec"]["template"]["spec"]
            self.assertEqual(pod["serviceAccountName"], "gpuloom-uninstall")
            self.assertEqual(pod["automountServiceAccountToken"], kind == "Job")
            paths = [volume["hostPath"]["path"] for volume in pod.get("volumes", [])]
            self.assertEqual(paths, {"Job": [], "gpuloom-drain": ["/var/lib/gpuloom"]}.get(
                kind if kind == "Job" else manifest["metadata"]["name"], ["/var/lib/kubelet/device-plugins", "/var/lib/gpuloom"]))
            for container in [*pod.get("initContainers", []), *pod["containers"]]:
                context = container["securityContext"]
                self.assertEqual((context["capabilities"], context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]),
                                 ({"drop": ["ALL"]}, False, True))
                self.assertEqual(context.get("runAsNonRoot", False), kind == "Job")

    def test_the_nodes_pods_are_where_the_schedulers_are_and_need_no_driver(self):
        values = {"nodeSelector": {"pool": "gpu"}, "tolerations": [{"operator": "Exists"}], "imagePullSecrets": [{"name": "s"}],
                  "image": {"repository": "r.example/g", "tag": "1"}, "commonLabels": {"team": "gpu"}}
        hooks = Hooks(values)
        schedulers = RENDERING.Render(values)[0]["DaemonSet", "gpuloom-schedulers"]["spec"]["template"]["spec"]
        for work in ("drain", "removal"):
            pod = hooks["DaemonSet", f"gpuloom-{work}"]["spec"]["template"]["spec"]
            for key in ("nodeSelector", "tolerations", "priorityClassName", "imagePullSecrets"):
                self.assertEqual(pod[key], schedulers[key])
            self.assertNotIn("runtimeClassName", pod)
            waiting = hooks["Job", f"gpuloom-{work}"]["spec"]["template"]
            self.assertEqual((waiting["spec"]["tolerations"], waiting["spec"]["imagePullSecrets"], waiting["metadata"]["labels"]["team"]),
                             ([{"operator": "Exists"}], [{"name": "s"}], "gpu"))
            self.assertNotIn("pool", waiting["spec"]["nodeSelector"])
            for made in [*pod["initContainers"], *pod["containers"], *waiting["spec"]["containers"]]:
                self.assertEqual(made["image"], "r.example/g:1")

    def test_quotas_let_them_in_and_meshes_know_them(self):
        labels, annotations = {"sidecar.istio.io/inject": "false"}, {"linkerd.io/inject": "disabled"}
        shared = {"podLabels": labels, "podAnnotations": annotations}
        own = {"requests": {"cpu": "20m", "memory": "40Mi"}, "limits": {"cpu": "1", "memory": "80Mi"}, "claims": [{"name": "a"}]}
        self.assertEqual(Refusals(shared | {"hookResources": own}), [])
        removal = RENDERING.Render(shared | {"removeState": True})[0]
        test = RENDERING.Render(shared)[0]["Pod", "gpuloom-test"]
        made = [*Hooks(shared).values(), *removal.values()]
        pods = [one["spec"]["template"] for one in made if one["kind"] in ("DaemonSet", "Job")] + [test]
        self.assertEqual(len(pods), 6)
        for pod in pods:
            self.assertLessEqual(labels.items(), pod["metadata"]["labels"].items())
            self.assertLessEqual(annotations.items(), pod["metadata"]["annotations"].items())
            for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
                self.assertLessEqual({"cpu", "memory"}, set(container["resources"]["requests"]))
                self.assertIn("memory", container["resources"]["limits"])
        for one in Hooks({"hookResources": own}).values():
            if one["kind"] in ("DaemonSet", "Job"):
                pod = one["spec"]["template"]["spec"]
                for container in [*pod.get("initContainers", []), *pod["containers"]]:
                    self.assertEqual(container["resources"], own)

    def test_openshift_wants_its_constraints_for_the_hooks_too(self):
        self.assertIn({"apiGroups": ["security.openshift.io"], "resources": ["securitycontextconstraints"],
                       "resourceNames": ["privileged"], "verbs": ["use"]},
                      Hooks({"securityContextConstraints": "privileged"})["Role", "gpuloom-uninstall"]["rules"])

    def test_they_are_made_where_they_are_wanted_and_a_cluster_is_asked(self):
        self.assertEqual(len(Hooks({})), 7)
        old = RENDERING.folder / "old.yaml"
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        del values["uninstallHooks"], values["hookResources"]
        old.write_text(yaml.safe_dump(values))
        reused = Hooks({}, "-upgrade", "-defaults", str(old))
        self.assertEqual(reused, Hooks({}, "-upgrade"), "an upgrade with --reuse-values")
        self.assertEqual(Hooks({"uninstallHooks": {"enabled": False}}), {})
        self.assertEqual(Hooks({"removeState": True}), {}, "it is what they would do")
        self.assertNotIn("pre-delete", RENDERING.Render({})[1], "whoever applies what helm template prints does not uninstall")

    def test_their_network_is_closed_but_for_the_jobs_way_to_the_api_server(self):
        added = [{"ports": [{"port": 16443, "protocol": "TCP"}]}]
        hooks = Hooks({"networkPolicy": {"enabled": True, "egress": added}, "events": {"enabled": False}})
        self.assertEqual(len(hooks), 9)
        expected = {"removal": ("post-delete", []), "uninstall": ("pre-delete,post-delete", [
            *added, {"ports": [{"port": 443, "protocol": "TCP"}, {"port": 6443, "protocol": "TCP"}]}])}
        for component, (phases, egress) in expected.items():
            policy = hooks["NetworkPolicy", f"gpuloom-{component}"]
            annotations = policy["metadata"]["annotations"]
            self.assertEqual((annotations["helm.sh/hook"], annotations["helm.sh/hook-weight"], annotations["helm.sh/hook-delete-policy"]),
                             (phases, "-4", "before-hook-creation,hook-succeeded"))
            spec = policy["spec"]
            self.assertEqual((spec["policyTypes"], spec["ingress"], spec["egress"]), (["Ingress", "Egress"], [], egress))
            self.assertEqual(spec["podSelector"]["matchExpressions"],
                             [{"key": "app.kubernetes.io/component", "operator": "In", "values": [component]}])
        # Before anything of the release is deleted, its own policy closes what drains the nodes; afterwards there is only the hook's.
        release = RENDERING.Render({"networkPolicy": {"enabled": True}}, *RENDERING.Cluster())[0]["NetworkPolicy", "gpuloom-closed"]
        self.assertNotIn("annotations", release["metadata"])
        [component] = release["spec"]["podSelector"]["matchExpressions"]
        self.assertEqual(component["values"], ["drain", "removal", "test"])

    def test_wrong_values_are_refused(self):
        for values, why in [({"enabled": "yes"}, "is not of type 'boolean'"), ({"timeout": "forever"}, "does not match"),
                            ({"timeout": 240}, "is not of type 'string'"), ({"drain": True}, "were unexpected|was unexpected")]:
            self.assertRegex("\n".join(Refusals({"uninstallHooks": values})), why)
        self.assertEqual(Refusals({"uninstallHooks": {"timeout": "30m"}}), [])


class Drain(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bin/answers").mkdir(parents=True)
        (self.folder / "bin/gpuloom").write_text(STAND_IN)
        (self.folder / "bin/gpuloom").chmod(0o755)
        (self.folder / "state/gpus/GPU-1").mkdir(parents=True)

    def Run(self, *answers):
        """What the script prints while `gpuloom` gives these (text, exit status), one after the other."""
        for number, (text, status) in enumerate(answers):
            (self.folder / f"bin/answers/{number}-{status}").write_text(text)
        ended = subprocess.run(["bash", "-c", SCRIPT.read_text(), "drain", self.folder / "state"], capture_output=True, text=True,
                               check=False, timeout=PATIENCE,
                               env=dict(os.environ, DRAIN_NODE_PAUSE="0.01", PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}"))
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout.splitlines()

    def test_it_waits_until_nobody_is_there_and_says_for_whom(self):
        said = self.Run((TABLE, 3), (TABLE, 3), ("gpuloom: scheduler GPU-1 does not answer\n", 1), ("nobody is there any more\n", 0))
        self.assertEqual(said, ["waits for pods that hold slots: team-a/train-7, team-b/serve-1",
                                "gpuloom: scheduler GPU-1 does not answer", "nobody holds slots"])
        calls = (self.folder / "bin/calls").read_text().splitlines()
        self.assertEqual(calls, [f"drain --state-dir {self.folder}/state --reason helm uninstall --wait --timeout 5s"] * 4)

    def test_pods_without_names_and_the_agent_that_is_missed(self):
        note = "no agent is in charge, so slots of pods that have ended stay taken until one is"
        answer = TABLE.replace("gpuloom: 3", f"-  -  -  GPU-1  1  -  not started\ngpuloom: {note}\ngpuloom: 4")
        self.assertEqual(self.Run(("gpuloom: waits for pods that hold slots: …\n" + answer, 3), ("", 0)),
                         ["waits for pods that hold slots: a pod that has not started, team-a/train-7, team-b/serve-1; " + note,
                          "nobody holds slots"])

    def test_a_node_without_a_gpu_has_nothing_to_wait_for(self):
        (self.folder / "state/gpus/GPU-1").rmdir()
        self.assertEqual(self.Run(("", 1)), ["no GPU of gpuloom is here"])
        self.assertFalse((self.folder / "bin/calls").exists())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_name:
        RENDERING = Rendering(pathlib.Path(folder_name))
        unittest.main()
