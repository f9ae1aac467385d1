#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every value of the chart does what it says where it is set, and a wrong one is refused with its place.

A new value needs a row in SET, or a test of its own and its name in TESTED, and where the schema knows more of it than its
type a row in WRONG.
"""

import json
import pathlib
import tempfile
import unittest

import yaml
from rendering import CHART, Merge, Refusals, Rendering

VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
DIGEST = "sha256:" + "0123456789abcdef" * 4
VOLUME = {"name": "certificates", "hostPath": {"path": "/etc/ssl"}}
MOUNT = {"name": "certificates", "mountPath": "/etc/ssl", "readOnly": True}
TOLERATION = {"key": "team", "operator": "Exists"}
LABELS = {"team": "gpu", "example.org/cost-centre": "7"}
PREFERRED = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
    {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}]}}
COMPONENTS = ("agent", "schedulers")


def Leaves(schema, definitions, path=()):
    """The paths of all values that have none below them, but for the policy's, which is a document of its own."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rsplit("/", 1)[1]]
    if path == ("policy",) or "additionalProperties" not in schema or schema["additionalProperties"] is not False:
        return [path]
    return [leaf for name, below in schema["properties"].items() for leaf in Leaves(below, definitions, (*path, name))]


def AllLeaves():
    schema = json.loads((CHART / "values.schema.json").read_text())
    return [".".join(leaf) for leaf in Leaves(schema, schema["definitions"])]


def Nested(path, value):
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def In(kind, name, *path):
    """Finds something in a manifest, None where it is not."""
    def Find(manifests):
        found = manifests.get((kind, name))
        for key in path:
            found = found.get(key) if isinstance(found, dict) else found and found[key]
        return found
    return Find


def Of(component, *path):
    return In("DaemonSet", f"gpuloom-{component}", *path)


def Pod(component, *path):
    return Of(component, "spec", "template", "spec", *path)


def Container(component, *path):
    return Pod(component, "containers", 0, *path)


# {value: [(what is set, where it is found in the manifests, what is there)]}
SET = {
    "image.repository": [("r.example/g", Container("agent", "image"), f"r.example/g:{VERSION}")],
    "image.tag": [("new", Container("schedulers", "image"), "gpuloom:new")],
    "image.digest": [(DIGEST, Container(name, "image"), f"gpuloom@{DIGEST}") for name in COMPONENTS],
    "image.pullPolicy": [("Always", Container(name, "imagePullPolicy"), "Always") for name in COMPONENTS],
    "imagePullSecrets": [([{"name": "s"}], Pod(name, "imagePullSecrets"), [{"name": "s"}]) for name in COMPONENTS],
    "runtimeClassName": [("nvidia-cdi", Pod("agent", "runtimeClassName"), "nvidia-cdi"), ("", Pod("agent", "runtimeClassName"), None)],
    "agent.maxSurge": [("25%", Of("agent", "spec", "updateStrategy", "rollingUpdate"), {"maxSurge": "25%", "maxUnavailable": 0})],
    "agent.updateStrategy.type": [("OnDelete", Of("agent", "spec", "updateStrategy"), {"type": "OnDelete"})],
    "agent.updateStrategy.rollingUpdate.maxSurge": [(2, Of("agent", "spec", "updateStrategy"), {"rollingUpdate": {"maxSurge": 2}})],
    "agent.updateStrategy.rollingUpdate.maxUnavailable":
        [("50%", Of("agent", "spec", "updateStrategy"), {"rollingUpdate": {"maxUnavailable": "50%"}})],
    "schedulers.updateStrategy.type": [("RollingUpdate", Of("schedulers", "spec", "updateStrategy"), {"type": "RollingUpdate"})],
    "schedulers.updateStrategy.rollingUpdate.maxUnavailable":
        [(1, Of("schedulers", "spec", "updateStrategy", "rollingUpdate"), {"maxUnavailable": 1})],
    "serviceAccount.name": [("own", Pod(name, "serviceAccountName"), "own") for name in COMPONENTS],
    "serviceAccount.annotations":
        [({"a": "b"}, In("ServiceAccount", "gpuloom", "metadata", "annotations"), {"a": "b"})],
    "slotShapes": [([2, 4], lambda manifests: Container("agent", "args")(manifests)[6], "--slot-shapes=2,4")],
    "securityContextConstraints": [("privileged", In("Role", "gpuloom", "rules", 0, "resourceNames"), ["privileged"])],
}
# What both DaemonSets' pods take from the shared value, and one of them from its own, in place of it.
SHARED = {"nodeSelector": {"pool": "gpu"}, "affinity": PREFERRED, "tolerations": [TOLERATION], "priorityClassName": "own",
          "podSecurityContext": {"runAsNonRoot": False, "seLinuxOptions": {"type": "spc_t"}},
          "podLabels": LABELS, "podAnnotations": {"example.org/scrape": "no"}}
IN_POD = {"podSecurityContext": "securityContext"}
# What each component has for itself.
OWN = {"terminationGracePeriodSeconds": (77, lambda name: Pod(name, "terminationGracePeriodSeconds"), 77),
       "resources.limits": ({"memory": "1Gi"}, lambda name: Container(name, "resources", "limits", "memory"), "1Gi"),
       "resources.requests": ({"cpu": 3}, lambda name: Container(name, "resources", "requests", "cpu"), 3),
       "resources.claims": ([{"name": "a"}], lambda name: Container(name, "resources", "claims"), [{"name": "a"}]),
       "extraEnv": ([{"name": "A", "value": "b"}], lambda name: Container(name, "env", -1), {"name": "A", "value": "b"}),
       "extraArgs": (["--grace-seconds=60"], lambda name: Container(name, "args", -1), "--grace-seconds=60"),
       "extraVolumes": ([VOLUME], lambda name: Pod(name, "volumes", -1), VOLUME),
       "extraVolumeMounts": ([MOUNT], lambda name: Container(name, "volumeMounts", -1), MOUNT)}
for component in COMPONENTS:
    SET |= {f"{component}.{key}": [(value, where(component), expected)] for key, (value, where, expected) in OWN.items()}
# {value: (argument, of which components)}: the rest of what is said on the command line.
ARGUMENTS = {"resourceName": ("example.org/slot", "--resource-name", ["agent"]), "slotsPerGpu": (4, "--slots", COMPONENTS),
             "reserve": ("4GiB", "--reserve", COMPONENTS), "pinnedLimit": ("1GiB", "--pinned-limit", ["agent"]),
             "migrateManagedMemory": (True, "--migrate-managed-memory", ["agent"]),
             "executorMemory": ("1GiB", "--executor-memory", ["schedulers"]), "idleTimeout": ("5m", "--idle-timeout", ["schedulers"]),
             "drainTimeout": ("500ms", "--drain-timeout", ["schedulers"]), "spareExecutors": (0, "--spare-executors", ["schedulers"]), "executorUsers": ("none", "--executor-users", ["schedulers"]),
             "logLevel": ("debug", "--log-level", ["agent", "schedulers"]), "logFormat": ("json", "--log-format", ["agent", "schedulers"]),
             "stateDir": ("/srv/gpuloom", "--state-dir", COMPONENTS)}
# What tests below and chart_test.py say more of than a row can, and what other tests are about.
TESTED = {"global", "policy", "gpuNodeLabels", "softgpu.enabled", "softgpu.devices", "softgpu.memory", "kubeletDir",
          "nvidiaRuntimeConfigDir", "nameOverride", "fullnameOverride", "commonLabels", "affinityPresets"}
OTHER_TESTS = {"events": "observing_test.py", "metrics": "observing_test.py", "networkPolicy": "observing_test.py", "removeState": "removal_test.py", "hookResources": "uninstall_test.py",
               "uninstallHooks": "uninstall_test.py"}

# [(values, what helm says)]: more than the wrong type, which each value refuses.
WRONG = [
    ({"fullnameOverride": "Own"}, r"fullnameOverride: 'Own' does not match"),
    ({"fullnameOverride": "x" * 51}, r"fullnameOverride: 'x+' does not match"),
    ({"nameOverride": "-a"}, r"nameOverride: '-a' does not match"),
    ({"commonLabels": {"app.kubernetes.io/instance": "b"}}, r"commonLabels: 'app.kubernetes.io/instance' should not be valid under"),
    ({"commonLabels": {"a": "b c"}}, r"commonLabels.a: 'b c' does not match"),
    ({"commonLabels": {"a b": "c"}}, r"commonLabels: 'a b' does not match"),
    ({"commonLabels": {"a": True}}, r"commonLabels.a: True is not of type 'string'"),
    ({"podLabels": {"app.kubernetes.io/component": "x"}}, r"podLabels: 'app.kubernetes.io/component' should not be valid under"),
    ({"slotShapes": [0]}, r"slotShapes.0: 0 is less than the minimum of 2"),
    ({"slotShapes": [1]}, r"slotShapes.0: 1 is less than the minimum of 2"),
    ({"slotShapes": [2, 4, 2]}, r"slotShapes: .* has non-unique elements"),
    ({"slotShapes": [101]}, r"slotShapes.0: 101 is greater than the maximum"),
    ({"slotShapes": [2.5]}, r"slotShapes.0: 2.5 is not of type 'integer'"),
    ({"slotShapes": ["4"]}, r"slotShapes.0: '4' is not of type 'integer'"),
    ({"slotShapes": 4}, r"slotShapes: 4 is not of type 'array'"),
    ({"slotShapes": [2, 3, 4, 5, 6, 7, 8, 9, 10]}, r"slotShapes: .* is too long"),
    ({"logLevel": "loud"}, r"logLevel: 'loud' is not one of"),
    ({"logFormat": "xml"}, r"logFormat: 'xml' is not one of"),
    ({"image": {"digest": "0123"}}, r"image.digest: '0123' does not match '\^\(sha256:"),
    ({"image": {"pullPolicy": "Sometimes"}}, r"image.pullPolicy: 'Sometimes' is not one of"),
    ({"podSecurityContext": {"runAsNonRoot": True}}, r"podSecurityContext.runAsNonRoot: True is not one of \[False\]"),
    ({"affinityPresets": ["amd64"]}, r"affinityPresets.0: 'amd64' is not one of \['linuxAmd64'"),
    ({"affinityPresets": ["linuxAmd64", "linuxAmd64"]}, r"affinityPresets: .* has non-unique elements"),
    ({"nodeSelector": {"a": True}}, r"nodeSelector.a: True is not of type 'string'"),
    ({"agent": {"updateStrategy": {"type": "Recreate"}}}, r"agent.updateStrategy.type: 'Recreate' is not one of"),
    ({"agent": {"updateStrategy": {"rollingUpdate": {"maxSurge": "120%"}}}}, r"maxSurge: '120%' does not match"),
    ({"schedulers": {"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}}, r"rollingUpdate: Additional properties .*'maxSurge'"),
    ({"schedulers": {"updateStrategy": {"type": None}}}, r"schedulers.updateStrategy: 'type' is a required property"),
    ({"agent": {"maxsurge": 2}}, r"agent: Additional properties are not allowed \('maxsurge' was unexpected\)"),
    ({"nodeselector": {}}, r"^: Additional properties are not allowed \('nodeselector' was unexpected\)"),
]
for component in COMPONENTS:
    WRONG += [({component: {key: value}}, message) for key, value, message in [
        ("terminationGracePeriodSeconds", 0, rf"{component}.terminationGracePeriodSeconds: 0 is less than the minimum"),
        ("extraArgs", ["grace-seconds=60"], rf"{component}.extraArgs.0: 'grace-seconds=60' does not match '\^--"),
        ("extraEnv", [{"value": "b"}], rf"{component}.extraEnv.0: 'name' is a required property"),
        ("extraEnv", [{"name": "A", "value": 1}], rf"{component}.extraEnv.0.value: 1 is not of type 'string'"),
        ("extraEnv", [{"name": "A-B"}], rf"{component}.extraEnv.0.name: 'A-B' does not match"),
        ("extraVolumes", [{"hostPath": {}}], rf"{component}.extraVolumes.0: 'name' is a required property"),
        ("extraVolumeMounts", [{"name": "a"}], rf"{component}.extraVolumeMounts.0: 'mountPath' is a required property"),
        ("resources", {"memory": "1Gi"}, rf"{component}.resources: Additional properties .*'memory' was unexpected"),
        ("podLabels", {"a/b/c": "d"}, rf"{component}.podLabels: 'a/b/c' does not match")]]


class Values(unittest.TestCase):
    def test_every_value_is_tested(self):
        tested = {*SET, *ARGUMENTS, *TESTED, *SHARED, *(f"{name}.{key}" for name in COMPONENTS for key in SHARED)}
        leaves = {leaf for leaf in AllLeaves() if leaf.split(".")[0] not in OTHER_TESTS}
        self.assertEqual(leaves - tested, set(), "values without a test")
        self.assertEqual(tested - leaves, set(), "tests of what is no value")
        for name, test in OTHER_TESTS.items():
            text = pathlib.Path(__file__).with_name(test).read_text()
            for leaf in AllLeaves():
                if leaf.split(".")[0] == name:
                    self.assertIn(leaf.split(".")[-1], text, f"{test} does not test {leaf}")

    def test_the_defaults_are_refused_nothing(self):
        self.assertEqual(Refusals({}), [])
        softgpu = yaml.safe_load((CHART.parents[1] / "deploy/examples/values-softgpu.yaml").read_text())
        self.assertEqual(Refusals(softgpu), [])

    def test_what_is_set_is_found(self):
        default = RENDERING.Render({})[0]
        for path, rows in SET.items():
            for value, where, expected in rows:
                with self.subTest(path):
                    values = Nested(path, value)
                    self.assertNotEqual(where(default), expected)
                    self.assertEqual(Refusals(values), [])
                    self.assertEqual(where(RENDERING.Render(values)[0]), expected)

    def test_what_is_said_on_the_command_line(self):
        for path, (value, flag, components) in ARGUMENTS.items():
            with self.subTest(path):
                self.assertEqual(Refusals({path: value}), [])
                manifests, _ = RENDERING.Render({path: value})
                for component in COMPONENTS:
                    said = str(value).lower() if isinstance(value, bool) else value
                    has = f"{flag}={said}" in Container(component, "args")(manifests)
                    self.assertEqual(has, component in components, component)

    def test_a_component_s_own_setting_replaces_the_shared_one(self):
        default_manifests = RENDERING.Render({})[0]
        for key, value in SHARED.items():
            where = ({"podLabels": lambda name: Of(name, "spec", "template", "metadata", "labels"),
                      "podAnnotations": lambda name: Of(name, "spec", "template", "metadata", "annotations")}
                     .get(key, lambda name, key=key: Pod(name, IN_POD.get(key, key))))
            default = {name: where(name)(default_manifests) for name in COMPONENTS}

            def Check(manifests, name, expected):
                found = where(name)(manifests)
                if key == "podLabels":
                    found = {label: text for label, text in found.items() if label not in default[name]}
                self.assertEqual(found, expected)

            with self.subTest(key):
                self.assertEqual(Refusals({key: value}), [])
                shared = RENDERING.Render({key: value})[0]
                for name in COMPONENTS:
                    self.assertNotEqual(default[name], value)
                    Check(shared, name, value)
                for name, other in [COMPONENTS, COMPONENTS[::-1]]:
                    self.assertEqual(Refusals({name: {key: value}}), [])
                    own = RENDERING.Render({name: {key: value}})[0]
                    Check(own, name, value)
                    self.assertEqual(where(other)(own), default[other])
                    # An empty one replaces it, too.
                    empty = RENDERING.Render({key: value, name: {key: type(value)()}})[0]
                    Check(empty, other, value)
                    if key == "affinity":  # the labels choose again
                        self.assertEqual(where(name)(empty), default[name])
                    else:
                        Check(empty, name, {} if key == "podLabels" else None)

    def test_every_value_refuses_what_it_is_not(self):
        for path in AllLeaves():
            self.assertTrue(any(message.startswith(path) for message in Refusals(Nested(path, 1.5))), path)

    def test_what_is_wrong_is_said_with_its_place(self):
        for values, message in WRONG:
            with self.subTest(values):
                self.assertRegex("\n".join(Refusals(values)), message)

    def test_a_shape_of_more_slots_than_a_gpu_has_is_refused(self):
        ended = RENDERING.Run({"slotShapes": [2, 5], "slotsPerGpu": 4})
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("slotShapes: 5 slots are on no GPU: each has 4 (slotsPerGpu)", ended.stderr)
        self.assertNotRegex(RENDERING.Render({})[1], "--slot-shapes|a shape")
        self.assertIn("asks for a shape (4, 2 slots)", RENDERING.Render({"slotShapes": [4, 2]})[1])
        self.assertIn("gpuloom.io/gpu-x4: 1", RENDERING.Render({"slotShapes": [4, 2]})[1])
        self.assertIn("--slot-shapes=4", RENDERING.Render({"slotShapes": [4], "slotsPerGpu": 4})[1])

    def test_labels_of_all_objects(self):
        self.assertEqual(Refusals({"commonLabels": LABELS}), [])
        everything = {"securityContextConstraints": "privileged", "networkPolicy": {"enabled": True}, "metrics": {
            name: {"enabled": True} for name in ("serviceMonitor", "prometheusRule", "grafanaDashboard")}}
        manifests = {**RENDERING.Render({"commonLabels": LABELS, **everything})[0],
                     **RENDERING.Render({"commonLabels": LABELS, "removeState": True})[0]}
        for (kind, name), manifest in manifests.items():
            self.assertLessEqual(LABELS.items(), manifest["metadata"]["labels"].items(), (kind, name))
            if kind == "DaemonSet":
                self.assertLessEqual(LABELS.items(), manifest["spec"]["template"]["metadata"]["labels"].items())
                self.assertNotIn("team", manifest["spec"]["selector"]["matchLabels"])
        # Never twice in one map, which no parser of Kubernetes' takes: the narrower one counts.
        manifests, text = RENDERING.Render({"commonLabels": LABELS, "podLabels": {"team": "other"}})
        self.assertEqual(Of("agent", "spec", "template", "metadata", "labels", "team")(manifests), "other")
        self.assertNotRegex(text, r"team: gpu\n( *)team:|team: other\n *team:")

    def test_names(self):
        for values, release, expected in [({}, "gpuloom", "gpuloom"), ({}, "a", "a-gpuloom"), ({}, "my-gpuloom-b", "my-gpuloom-b"),
                                          ({}, "x" * 53, "x" * 50), ({"nameOverride": "gpus"}, "a", "a-gpus"),
                                          ({"fullnameOverride": "own"}, "a", "own"),
                                          ({"fullnameOverride": "own", "nameOverride": "gpus"}, "a", "own")]:
            with self.subTest(values=values, release=release):
                self.assertEqual(Refusals(values), [])
                manifests, text = RENDERING.Render(values, "-release", release)
                for kind, name in manifests:
                    self.assertRegex(name, rf"^{expected}(-\w+)*$")
                    self.assertLessEqual(len(name), 63)
                selector = manifests["DaemonSet", f"{expected}-agent"]["spec"]["selector"]["matchLabels"]
                self.assertEqual(selector, {"app.kubernetes.io/name": values.get("nameOverride", "gpuloom"),
                                            "app.kubernetes.io/instance": release, "app.kubernetes.io/component": "agent"})
                self.assertIn(f"daemonset/{expected}-schedulers", text)
                self.assertEqual(Pod("agent", "volumes", 3)({("DaemonSet", "gpuloom-agent"): manifests["DaemonSet", f"{expected}-agent"]}),
                                 {"name": "policy", "configMap": {"name": f"{expected}-policy"}})

    def test_presets_are_added_to_every_term(self):
        def Terms(values):
            affinity = Pod("schedulers", "affinity")(RENDERING.Render(values)[0])
            return [term["matchExpressions"]
                    for term in affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]]

        amd64 = [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                 {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]
        virtual = [{"key": "type", "operator": "NotIn", "values": ["virtual-kubelet"]},
                   {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["fargate"]}]
        plugin = [{"key": "nvidia.com/gpu.deploy.device-plugin", "operator": "NotIn", "values": ["true"]}]
        labels = Terms({})
        self.assertEqual(Terms({"affinityPresets": ["linuxAmd64"]}), [term + amd64 for term in labels])
        self.assertEqual(Terms({"affinityPresets": ["noVirtualNodes"], "softgpu": {"enabled": True}}), [virtual])
        own = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"matchExpressions": [{"key": "b", "operator": "Exists"}]}]
        values = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": own}}}}
        self.assertEqual(Terms(Merge({"affinityPresets": ["noNvidiaDevicePlugin", "linuxAmd64"]}, values)),
                         [term["matchExpressions"] + plugin + amd64 for term in own])
        both = Pod("agent", "affinity")(RENDERING.Render({"affinity": PREFERRED, "affinityPresets": ["linuxAmd64"]})[0])["nodeAffinity"]
        self.assertLessEqual(PREFERRED["nodeAffinity"].items(), both.items())
        self.assertIn("requiredDuringSchedulingIgnoredDuringExecution", both)

    def test_directories_of_the_node(self):
        manifests, _ = RENDERING.Render({"kubeletDir": "/srv/kubelet", "nvidiaRuntimeConfigDir": "/etc/runtime", "stateDir": "/srv/state"})
        paths = {volume["name"]: volume["hostPath"]["path"] for volume in Pod("agent", "volumes")(manifests) if "hostPath" in volume}
        self.assertEqual(paths, {"device-plugins": "/srv/kubelet/device-plugins", "pod-resources": "/srv/kubelet/pod-resources",
                                 "state": "/srv/state", "nvidia-runtime-config": "/etc/runtime"})
        for name in COMPONENTS:  # for gpuloom's commands there
            self.assertIn({"name": "GPULOOM_STATE_DIR", "value": "/srv/state"}, Container(name, "env")(manifests))
            self.assertIn({"name": "GPULOOM_KUBELET_DIR", "value": "/srv/kubelet"}, Container(name, "env")(manifests))
        manifests, _ = RENDERING.Render({"nvidiaRuntimeConfigDir": ""})
        self.assertNotIn("nvidia-runtime-config", [volume["name"] for volume in Pod("agent", "volumes")(manifests)])

    def test_software_gpus(self):
        manifests, _ = RENDERING.Render({"softgpu": {"enabled": True, "devices": 3, "memory": "2GiB"}})
        for name in COMPONENTS:
            self.assertIn({"name": "GPULOOM_SOFTGPU_DEVICES", "value": "3"}, Container(name, "env")(manifests))
            self.assertIn({"name": "GPULOOM_SOFTGPU_MEMORY", "value": "2GiB"}, Container(name, "env")(manifests))
            self.assertIn("--softgpu=/opt/gpuloom/lib/softgpu/libcuda.so.1", Container(name, "args")(manifests))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_name:
        RENDERING = Rendering(pathlib.Path(folder_name))
        unittest.main()
