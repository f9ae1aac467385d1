#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every command that the documents show works as it stands, for a reader who comes to it from a clean checkout and has typed
those above it. A new block is run without being listed; what is not run, or not as it stands, is in a table below with
the reason.

usage: commands_test.py BUILD_FOLDER [unittest's arguments]   BUILD_FOLDER: where everything is built, by ninja
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/chart"), str(ROOT / "tests/documents"), str(ROOT / "tests/fake_kubelet")]

import blocks  # noqa: E402
import checkout  # noqa: E402
from local_node import LocalNode  # noqa: E402
from rendering import Refusals, Renderer  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()

# What a reader replaces by something of his own.
PLACES = {"REGISTRY": "registry.example/team", "NODE": "node-1", "PACK": "build/pack", "OUT": "build/out"}

# Shorter, and otherwise as it stands: one second instead of ten minutes, one line of many.
SHORTER = [(r"--seconds \d+", "--seconds 1"), (r"--only launch$", "--only launch_call")]

# {command: (why it is not run as it stands, what is run instead…)}; {} stands for the command.
ALL_OF_THEM = "it runs this test, among all others"
MEASURES = "measures a GPU, with PyTorch, for a quarter of an hour"
INSTEAD = {
    "helm upgrade gpuloom charts/gpuloom -n gpuloom-system --reuse-values --set policy.defaults.deny=true":
        ("it has been uninstalled above, in the other way",
         "helm install gpuloom charts/gpuloom -n gpuloom-system --set image.repository=registry.example/team/gpuloom", "{}"),
    "tests/run.sh": (ALL_OF_THEM, "bash -n tests/run.sh"),
    "tests/run.sh --quick": (ALL_OF_THEM, "grep -e '--quick)' tests/run.sh", "cmake --preset dev", "cmake --build --preset dev"),
    "tests/run.sh --long": (ALL_OF_THEM, "grep -e '--long)' tests/run.sh"),
    "tests/bench/run.py --bench build/release/tests/bench/gpuloom-bench --gpuloom build/release/bin/gpuloom --out table.md":
        (MEASURES, "{} --softgpu --native build/release/lib/softgpu/libcuda.so.1 --only launch"),
    "tests/bench/run.py --bench build/release/tests/bench/gpuloom-bench --gpuloom build/release/bin/gpuloom "
    "--softgpu --native build/release/lib/softgpu/libcuda.so.1":
        ("bench_run_test runs all of it", "{} --only launch"),
    "build/pack/tests/run.py --bench build/pack/tests/gpuloom-bench --gpuloom build/pack/bin/gpuloom":
        (MEASURES, "{} --softgpu --native build/pack/lib/softgpu/libcuda.so.1 --only launch"),
    "tests/bench/run.py --bench build/release/tests/bench/gpuloom-bench --gpuloom build/release/bin/gpuloom "
    "--only sharing --quick --rounds 1 --budget 540":
        (MEASURES, "{} --softgpu --native build/release/lib/softgpu/libcuda.so.1 --only launch"),
    "build/release/tests/bench/gpuloom-call-cost":
        ("bench_call_cost_test is this command", "test -x {}", "ctest --test-dir build/release -R '^bench_call_cost_test$'"),
    "cmake --install build/release --strip --prefix /opt/gpuloom":
        ("packaging_install_test is this command", "ctest --test-dir build/release -R '^packaging_install_test$'"),
    "cpack -G DEB --config build/release/CPackConfig.cmake -B build/packages":
        ("packaging_package_test is this command", "ctest --test-dir build/release -R '^packaging_package_test$'"),
    "apt-get install ./build/packages/gpuloom_*.deb":
        ("packaging_package_test unpacks them", "ctest --test-dir build/release -R '^packaging_package_test$'"),
    "systemctl enable --now gpuloom-scheduler@0.service":
        ("nothing here is systemd's; packaging_install_test runs what the units say", "test -f 'deploy/systemd/gpuloom-scheduler@.service.in'"),
    "systemctl enable --now gpuloom-schedulers.service gpuloom-agent.service":
        ("the same", "test -f deploy/systemd/gpuloom-schedulers.service.in", "test -f deploy/systemd/gpuloom-agent.service.in"),
    "apt-get install ./build/packages/gpuloom_*.deb ./build/packages/gpuloom-agent_*.deb":
        ("packaging_package_test unpacks them; what they do besides is in these scripts",
         "grep -q 'try-restart gpuloom-agent.service' deploy/debian/agent/postinst", "! grep -q invoke deploy/debian/node/postinst"),
    "systemctl restart gpuloom-schedulers.service": ("nothing here is systemd's", "test -f deploy/systemd/gpuloom-schedulers.service.in"),
    "tests/soak/soak.py --build build/dev --seconds 600":
        ("soak_test is this command, for half a minute", "tests/soak/soak.py --help"),
    "build/pack/tests/check_gpu.py --out build/out":
        ("takes ten minutes of a GPU", "{} --softgpu --stages confined,conformance --shards 2 --filter 'Memset2D*'"),
    "build/pack/tests/side_by_side/run.py --out build/out":
        ("side_by_side_softgpu runs all programs; frameworks need a GPU", "{} --softgpu --only programs/vadd_static"),
    "kubectl exec trainer-0 -- gpuloom-trace --seconds 5 -o - > trace.json":
        ("no pod is at work here; own_trace_test traces one",
         '"$GPULOOM_STAND_IN_BUILD/bin/gpuloom" run --softgpu --trace own -- gpuloom-trace --help'),
    "tests/versions/record.py --client OLD --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.0 --name 3.0":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client build/dev --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.0 --name 3.1":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client OLD --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.1 --name 3.1":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client build/dev --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.1 --name 3.2":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client OLD --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.2 --name 3.2":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client build/dev --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.2 --name 3.3":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client OLD --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.3 --name 3.3":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client build/dev --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.3 --name 3.4":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client OLD --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.4 --name 3.4":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client build/dev --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.4 --name 3.5":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client OLD --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.5 --name 3.5":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client build/dev --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.5 --name 3.6":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client OLD --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.6 --name 3.6":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client build/dev --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.6 --name 3.7":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client OLD --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.7 --name 3.7":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
    "tests/versions/record.py --client build/dev --scheduler OLD --recorder build/dev/tests/gpuloom-record-control "
    "--out tests/golden/control_3.7 --name 3.8":
        ("OLD is a build of another commit; made once, when the protocol changes", "tests/versions/record.py --help"),
}

# What a command's output says when it has done what it is shown for: (command, output).
SHOWS = [(r"tests/programs/\w+$", r"\bPASS\b"),
         (r"-- gpuloom (tenants|suspend|resume|top)( |$)|^kubectl gpuloom (tenants|top|suspend)", r"train-7"),
         (r"-- gpuloom (gpus|version)( |$)", r"GPU-"),
         (r"-- gpuloom refusals", r"REASON"),
         (r"(-- |kubectl )gpuloom (--node node-1 )?policy show", r"weight: 50"),
         (r"(-- |kubectl )gpuloom doctor", r"in force since"),
         (r"--gtest_filter", r"\[  PASSED  \] [1-9]"),
         (r"^deploy/demo\.sh", r"no process is left"),
         (r"^ctest ", r"Total Tests: [1-9]")]

# Whose reader has a cluster with gpuloom in it before the first command; all others start with a checkout and nothing else.
IN_A_CLUSTER = {"docs/cli.md", "docs/events.md", "docs/node-page.md", "docs/operations.md", "docs/policy.md", "docs/status.md", "docs/suspending.md", "docs/tracing.md",
                "docs/upgrading.md"}
RELEASE = yaml.safe_load((ROOT / "charts/gpuloom/Chart.yaml").read_text())["appVersion"]
CLUSTER = {"built": [], "pushed": ["registry.example/team/gpuloom:1", f"registry.example/team/gpuloom:{RELEASE}"],
           "releases": {"gpuloom-system/gpuloom": {"image": {"repository": "registry.example/team/gpuloom", "tag": "1"}}},
           "namespaces": ["gpuloom-system", "team-a"],
           # The Job is of a `helm uninstall` that has failed.
           "objects": {"gpuloom-system": ["DaemonSet/gpuloom-agent", "DaemonSet/gpuloom-schedulers", "ConfigMap/gpuloom-policy",
                                          "Job/gpuloom-drain"]}}
NOTHING = {"built": [], "pushed": [], "releases": {}, "namespaces": [], "objects": {}}


def CheckPolicy(test, text):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        checked = subprocess.run([BUILD / "bin/gpuloom-agent", "--check-policy", "--policy", file.name], capture_output=True,
                                 text=True, check=False)
    test.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


def CheckResources(test, text):
    """The same as in the example that is a whole pod, or one of a shape."""
    pod = yaml.safe_load((ROOT / "deploy/examples/pod.yaml").read_text())
    asked = yaml.safe_load(text)["resources"]
    [(name, count)] = asked["limits"].items()
    slots = pod["spec"]["containers"][0]["resources"]
    [slots_name] = slots["limits"]
    if name == slots_name:
        test.assertEqual(asked, slots)
    else:
        test.assertRegex(name, rf"^{re.escape(slots_name)}-x[1-9]\d*$")
        test.assertEqual(count, 1)


def CheckRuntimeConfig(test, text):
    """A runtime's configuration that the agent has nothing to say against: what it looks for is there, and false."""
    source = (ROOT / "agent/node/runtime_check.h").read_text()
    wanted = re.search(r'kRuntimeKey\[\] = "([\w-]+)"', source)[1]
    test.assertIs(tomllib.loads(text)[wanted], False)


def CheckQueries(test, text):
    """Each query that begins at the left, as promtool judges it; tests/integration/agent_metrics_test.cc asks a Prometheus."""
    rules = [{"record": "documented", "expr": query} for query in re.split(r"\n(?![ )])", text)]
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump({"groups": [{"name": "documents", "rules": rules}]}, file)
        file.flush()
        checked = subprocess.run(["promtool", "check", "rules", "--lint=none", file.name], capture_output=True, text=True, check=False)
    test.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


def CheckRelabelling(test, text):
    """A part of a scrape configuration that promtool takes, which gives all agents of a node one instance."""
    part = yaml.safe_load(text)
    test.assertEqual([rule["target_label"] for rule in part["relabel_configs"]], ["instance"])
    whole = {"scrape_configs": [{"job_name": "gpuloom", "static_configs": [{"targets": ["node-1:9400"]}], **part}]}
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(whole, file)
        file.flush()
        checked = subprocess.run(["promtool", "check", "config", "--syntax-only", file.name], capture_output=True, text=True, check=False)
    test.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)


def CheckCuptiIsFound(test, text):
    """Values with which the chart mounts, in the schedulers' pods, a folder in which executors look for CUPTI."""
    values = yaml.safe_load(text)
    test.assertEqual(Refusals(values), [])
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        rendered = subprocess.run([RENDERER, "-only", "schedulers.yaml", ROOT / "charts/gpuloom", file.name],
                                  capture_output=True, text=True, check=False)
    test.assertEqual(rendered.returncode, 0, rendered.stderr)
    [pod] = [manifest["spec"]["template"]["spec"] for manifest in yaml.safe_load_all(rendered.stdout)
             if manifest and manifest["kind"] == "DaemonSet"]
    [mount] = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "cuda"]
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "cuda"]
    test.assertTrue(mount["readOnly"] and volume["hostPath"]["path"])
    looked_in = re.search(r"kFolders\[\] = \{(.*?)\}", (ROOT / "agent/executor/trace/cupti.cc").read_text(), re.DOTALL)[1]
    for folder in re.findall('"(.*?)"', looked_in):
        test.assertTrue(folder.startswith(mount["mountPath"] + "/"), folder)


# {(document, first line): what must be true of the text}
FORMATS = {("docs/policy.md", "defaults:"): CheckPolicy,
           ("docs/policy.md", "namespaces:"): CheckPolicy,
           ("docs/metrics.md", 'rate(gpuloom_gpu_busy_seconds_total{engine="compute"}[5m])'): CheckQueries,
           ("docs/metrics.md", "gpuloom_tenant_memory_used_bytes / gpuloom_tenant_memory_quota_bytes > 0.9"): CheckQueries,
           ("docs/metrics.md", "sum by (namespace, pod, kind) (increase(gpuloom_tenant_faults_total[1h])) > 0"): CheckQueries,
           ("docs/metrics.md", "sum by (call) (rate(gpuloom_kubelet_refusals_total[15m])) / "
                               "sum by (call) (rate(gpuloom_kubelet_requests_total[15m]))"): CheckQueries,
           ("docs/metrics.md", "2.50 / 3600 * ("): CheckQueries,
           ("docs/metrics.md", "relabel_configs:"): CheckRelabelling,
           ("docs/tracing.md", "schedulers:"): CheckCuptiIsFound,
           ("docs/installation.md", "resources:"): CheckResources,
           ("docs/installation.md", "accept-nvidia-visible-devices-envvar-when-unprivileged = false"): CheckRuntimeConfig}


class Node(LocalNode):
    """The node whose agent's pod the documents ask, with their pod on it."""

    def __init__(self):
        super().__init__("documents", gpus=1, slots=10, settings={"GPULOOM_SOFTGPU_MEMORY": "1GiB", "GPULOOM_SOFTGPU_QUIET": "1"})
        self.policy.write_text("defaults: {weight: 50}\n")
        self.StartSchedulers(BUILD)
        self.StartAgent(BUILD)
        self.StartKubelet(BUILD)
        self.Until(self.ProbeIsReady, "the agent does not become ready")
        self.StartPod({"namespace": "team-a", "name": "train-7", "slots": 1, "command": ["sleep", "3600"], "timeoutSeconds": 3600})
        self.Until(lambda: "train-7" in self.Tenants(), "the pod does not start")

    def Tenants(self):
        return subprocess.run([BUILD / "bin/gpuloom", "tenants", "--state-dir", self.state], capture_output=True, text=True,
                              check=False).stdout

    def Places(self):
        return {"state": str(self.state), "kubelet": str(self.kubelet_dir), "policy": str(self.policy)}


def Replaced(command):
    for name, place in PLACES.items():
        command = re.sub(rf"\b{name}\b", place, command)
    return command


def ToType(command):
    """What is typed for a command of the documents."""
    command = Replaced(command)
    _, *instead = INSTEAD.get(command, ("", "{}"))
    commands = [text.replace("{}", command) for text in instead]
    for pattern, text in SHORTER:
        commands = [re.sub(pattern, text, command) for command in commands]
    return commands


class Documents(unittest.TestCase):
    def setUp(self):
        self.blocks = {}
        self.wrong = []
        for name in blocks.Documents(ROOT):
            self.blocks[name], wrong = blocks.Blocks(ROOT, name)
            self.wrong += wrong

    def test_every_block_says_what_it_is(self):
        self.assertEqual(self.wrong, [])

    def test_no_command_hides_in_a_text(self):
        known = {"$", "sudo", "git", "docker", "helm", "kubectl", "cmake", "ctest", "ninja", "gpuloom", "python3"}
        for block in sum(self.blocks.values(), []):
            for line in block.text.splitlines() if block.language == "text" else []:
                first = line.split(" ")[0]
                self.assertFalse(first in known or first and (ROOT / first).is_file(), f"{block.where}: {line}")

    def test_formats_are_right(self):
        seen = set()
        for block in sum(self.blocks.values(), []):
            if block.language in blocks.LANGUAGES - blocks.COMMANDS - {"text"}:
                key = (block.document, block.text.splitlines()[0])
                self.assertIn(key, FORMATS, f"{block.where}: nothing checks it")
                FORMATS[key](self, block.text)
                seen.add(key)
        self.assertEqual(seen, set(FORMATS), "a row of FORMATS is about nothing")

    def test_the_table_of_exceptions_is_about_commands_that_are_there(self):
        shown = {Replaced(command) for block in sum(self.blocks.values(), []) if block.language in blocks.COMMANDS
                 for command in block.Commands()}
        self.assertEqual(set(INSTEAD) - shown, set())

    def test_every_command_works(self):
        typed = 0
        self.node = Node()
        self.addCleanup(self.node.End)
        for document, of_document in self.blocks.items():
            commands = [(block.where, command) for block in of_document if block.language in blocks.COMMANDS
                        for command in block.Commands()]
            if commands:
                with self.subTest(document):
                    self.CheckCommands(document, commands)
                    typed += len(commands)
        self.assertGreater(typed, 0)

    def test_the_charts_notes_can_be_typed(self):
        """What helm tells a reader to do next."""
        for flags, values, asked in (("", {}, 7), (" --set removeState=true", {"removeState": True}, 3)):
            machine = checkout.Checkout(FOLDER, BUILD, RENDERER, NOTHING | {"pushed": CLUSTER["pushed"]}, {})
            self.addCleanup(machine.Leave)
            values_file = pathlib.Path(machine.holder.name, "notes.yaml")
            values_file.write_text(yaml.safe_dump(values))
            rendered = subprocess.run([RENDERER, "-only", "NOTES.txt", ROOT / "charts/gpuloom", values_file], capture_output=True, text=True,
                                      check=True).stdout
            commands = re.findall(r"^(?:.*: |\s*)((?:kubectl|helm) .*)$", rendered, re.MULTILINE)
            self.assertEqual(len(commands), asked, rendered)
            for command in [f"helm install gpuloom charts/gpuloom -n gpuloom-system --create-namespace "
                            f"--set image.repository=registry.example/team/gpuloom{flags}", *commands]:
                status, output = machine.Type(Replaced(command))
                self.assertEqual(status, 0, f"{command}\n{output}")

    def CheckCommands(self, document, commands):
        machine = checkout.Checkout(FOLDER, BUILD, RENDERER, CLUSTER if document in IN_A_CLUSTER else NOTHING,
                                    self.node.Places())
        self.addCleanup(machine.Leave)
        for where, shown in commands:
            for command in ToType(shown):
                print(f"{where}: {command}", flush=True)  # for whoever sees one that hangs
                status, output = machine.Type(command)
                self.assertEqual(status, 0, f"{where}: {command}\n{output}")
                for pattern, wanted in SHOWS:
                    if re.search(pattern, command):
                        self.assertRegex(output, wanted, f"{where}: {command}")


if __name__ == "__main__":
    # Beside the build, so that what it has can be linked to.
    FOLDER = BUILD / "documents"
    FOLDER.mkdir(exist_ok=True)
    for left in FOLDER.glob("checkout-*"):  # by a run that was ended
        shutil.rmtree(left)
    RENDERER = Renderer(FOLDER)
    unittest.main()
