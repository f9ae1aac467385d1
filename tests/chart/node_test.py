#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the chart runs on a node, with the real programs on the software GPU: the program of `helm test` as a pod's, and the script
of removeState beside an agent and a scheduler that still run, and after them.

usage: node_test.py BUILD_FOLDER
"""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import yaml
from rendering import CHART, ROOT, Rendering

sys.path.insert(0, str(ROOT / "deploy"))
import demo  # noqa: E402

# There are no bind mounts here: the libraries get the names that a container has them by, as hard links, so that the files are the
# same ones, too.
CONTAINER = """
mkdir "$1"
ln "$LD_PRELOAD" "$1/libcuda.so.1" && ln "$LD_PRELOAD" "$1/libcuda.so"
for name in libnvidia-ml.so.1 libnvidia-ml.so; do ln "$(dirname "$LD_PRELOAD")"/*nvml* "$1/$name"; done
LD_PRELOAD=$1/libcuda.so.1 LD_LIBRARY_PATH=$1 exec "$2"
"""

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
SLOTS = 4
# Long against what anything here takes on a machine that is busy.
PATIENCE = 120


class Node(unittest.TestCase):
    def setUp(self):
        # Schedulers outlive their agent: what is left is this process's to end.
        ctypes.CDLL(None, use_errno=True).prctl(demo.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        folder = tempfile.TemporaryDirectory(prefix="gpuloom-node-")
        self.addCleanup(folder.cleanup)
        self.addCleanup(self.EndEverything)
        self.folder = pathlib.Path(folder.name)
        self.state, self.kubelet = self.folder / "state", self.folder / "kubelet"
        self.environment = dict(os.environ, GPULOOM_SOFTGPU_DEVICES="1", GPULOOM_SOFTGPU_MEMORY="2GiB", GPULOOM_SOFTGPU_QUIET="1")

    def EndEverything(self):
        for pid in demo.Descendants():
            os.kill(pid, signal.SIGKILL)
        demo.WaitUntilAlone(PATIENCE)

    def Start(self, *command, log):
        with open(self.folder / log, "wb") as errors:
            return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=errors, env=self.environment, text=True)

    def Log(self, name):
        return (self.folder / name).read_text(errors="replace")

    def test_a_tenant_computes_and_nothing_is_left_of_it_all(self):
        manifests, _ = RENDERING.Render({})
        [container] = manifests["Pod", "gpuloom-test"]["spec"]["containers"]
        program = BUILD / "tests" / pathlib.Path(container["command"][0]).name
        scenario = self.folder / "scenario.yaml"
        scenario.write_text(yaml.safe_dump({"pods": [{"namespace": "gpuloom-system", "name": "gpuloom-test",
                                                      "slots": container["resources"]["limits"]["gpuloom.io/gpu"],
                                                      "command": ["bash", "-ec", CONTAINER, "container",
                                                                  str(self.folder / "lib"), str(program)]}]}))
        kubelet = self.Start(BUILD / "bin/fake-kubelet", "--dir", self.kubelet, "--scenario", scenario, "--ready", "--wait-devices",
                             SLOTS, log="kubelet.log")
        self.addCleanup(kubelet.stdout.close)
        kubelet.stdout.readline()  # its sockets are there
        agent = self.Start(BUILD / "bin/gpuloom-agent", "--state-dir", self.state, "--kubelet-dir", self.kubelet / "device-plugins",
                           "--pod-resources-socket", self.kubelet / "pod-resources/kubelet.sock", "--slots", SLOTS,
                           "--softgpu", BUILD / "lib/softgpu/libcuda.so.1", log="agent.log")
        self.addCleanup(agent.stdout.close)
        results = [json.loads(line) for line in kubelet.stdout if line.startswith('{"namespace"')]
        self.assertEqual([(result["phase"], result["stdout"]) for result in results], [("Succeeded", "ok\n")],
                         f"{results}\n{self.Log('agent.log')}{self.Log('kubelet.log')}")
        kubelet.wait(PATIENCE)

        removal = subprocess.Popen(["bash", CHART / "scripts/remove-state.sh", self.state, self.kubelet / "device-plugins"],
                                   stdout=subprocess.PIPE, text=True, env=dict(os.environ, REMOVE_STATE_PAUSE="0.1"))
        self.addCleanup(removal.stdout.close)
        self.assertIn("agent.lock is held", removal.stdout.readline())
        agent.send_signal(signal.SIGTERM)
        agent.wait(PATIENCE)
        self.assertRegex(removal.stdout.readline(), r"/gpus/.+/lock is held")
        self.assertTrue(list(self.state.glob("gpus/*/control.sock")), "a scheduler's files were taken away")
        for pid, name in demo.Descendants().items():
            if name.startswith("gpuloom-schedu"):
                os.kill(pid, signal.SIGTERM)
        self.assertIn("nothing of gpuloom is left", removal.stdout.read())
        self.assertEqual(removal.wait(PATIENCE), 0)
        self.assertEqual(list(self.state.iterdir()), [])
        self.assertEqual(list((self.kubelet / "device-plugins").glob("gpuloom*")), [])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_name:
        RENDERING = Rendering(pathlib.Path(folder_name))
        unittest.main()
