#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the chart runs on a node, with the real programs on the software GPU: the program of `helm test` as a pod's, what `helm
uninstall` runs while a pod holds slots and afterwards, and the script of removeState beside an agent and a scheduler that still run.

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
import time
import unittest

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
        demo.SignalDescendants(signal.SIGKILL)
        demo.WaitUntilAlone(PATIENCE)

    def Start(self, *command, log):
        with open(self.folder / log, "wb") as errors:
            return subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                                    env=self.environment, text=True)

    def Log(self, name):
        return (self.folder / name).read_text(errors="replace")

    def Await(self, is_so):
        end = time.monotonic() + PATIENCE
        while not is_so():
            self.assertLess(time.monotonic(), end, self.Log("agent.log"))
            time.sleep(0.05)

    def StartNode(self, pods, *agent_flags):
        """The kubelet stand-in with these pods, until its input is closed and they have ended; and the agent."""
        kubelet = self.Start(BUILD / "bin/fake-kubelet", "--dir", self.kubelet, "--scenario", "-", "--ready", "--wait-devices",
                             SLOTS, log="kubelet.log")
        self.addCleanup(kubelet.stdout.close)
        kubelet.stdout.readline()  # its sockets are there
        kubelet.stdin.writelines(json.dumps(pod) + "\n" for pod in pods)
        kubelet.stdin.flush()
        return kubelet, self.StartAgent(*agent_flags)

    def StartAgent(self, *flags):
        agent = self.Start(BUILD / "bin/gpuloom-agent", "--state-dir", self.state, "--kubelet-dir", self.kubelet / "device-plugins",
                           "--pod-resources-socket", self.kubelet / "pod-resources/kubelet.sock", "--slots", SLOTS,
                           "--softgpu", BUILD / "lib/softgpu/libcuda.so.1", *flags, log="agent.log")
        agent.stdin.close()
        self.addCleanup(agent.stdout.close)
        return agent

    def StartScript(self, name, *arguments):
        script = subprocess.Popen(["bash", CHART / "scripts" / name, *arguments], stdout=subprocess.PIPE, text=True,
                                  env=dict(os.environ, REMOVE_STATE_PAUSE="0.1", DRAIN_NODE_PAUSE="0.1",
                                           PATH=f"{BUILD / 'bin'}:{os.environ['PATH']}"))
        self.addCleanup(script.stdout.close)
        return script

    def RemoveAll(self, agent):
        """Ends the agent, then the schedulers, while the script waits for them in turn; nothing is left."""
        removal = self.StartScript("remove-state.sh", self.state, self.kubelet / "device-plugins")
        self.assertIn("agent.lock is held", removal.stdout.readline())
        agent.send_signal(signal.SIGTERM)
        agent.wait(PATIENCE)
        self.assertRegex(removal.stdout.readline(), r"/gpus/.+/lock is held")
        self.assertTrue(list(self.state.glob("gpus/*/control.sock")), "a scheduler's files were taken away")
        demo.SignalDescendants(signal.SIGTERM, "gpuloom-scheduler")
        self.assertIn("nothing of gpuloom is left", removal.stdout.read())
        self.assertEqual(removal.wait(PATIENCE), 0)
        self.assertEqual(list(self.state.iterdir()), [])
        self.assertEqual(list((self.kubelet / "device-plugins").glob("gpuloom*")), [])

    def test_a_tenant_computes_and_nothing_is_left_of_it_all(self):
        manifests, _ = RENDERING.Render({})
        [container] = manifests["Pod", "gpuloom-test"]["spec"]["containers"]
        program = BUILD / "tests" / pathlib.Path(container["command"][0]).name
        kubelet, agent = self.StartNode([{"namespace": "gpuloom-system", "name": "gpuloom-test",
                                          "slots": container["resources"]["limits"]["gpuloom.io/gpu"],
                                          "command": ["bash", "-ec", CONTAINER, "container", str(self.folder / "lib"), str(program)]}])
        kubelet.stdin.close()
        results = [json.loads(line) for line in kubelet.stdout if line.startswith('{"namespace"')]
        self.assertEqual([(result["phase"], result["stdout"]) for result in results], [("Succeeded", "ok\n")],
                         f"{results}\n{self.Log('agent.log')}{self.Log('kubelet.log')}")
        kubelet.wait(PATIENCE)
        self.RemoveAll(agent)

    def Wait(self, nodes_done, line):
        """The ended Job of the hook that drains, in a cluster whose one node's pod is ready or has printed this line."""
        manifests, _ = RENDERING.Render({"uninstallHooks": {"timeout": "500ms"}}, *RENDERING.Cluster())
        daemon_set = manifests["DaemonSet", "gpuloom-drain"]
        [container] = manifests["Job", "gpuloom-drain"]["spec"]["template"]["spec"]["containers"]
        folder = self.folder / "api-server"
        folder.mkdir(exist_ok=True)
        path = "/api/v1/namespaces/gpuloom-system/pods"
        selector = "%2C".join(f"{key}%3D{value}" for key, value in sorted(daemon_set["spec"]["selector"]["matchLabels"].items()))
        pod = {"metadata": {"name": "gpuloom-drain-x"}, "spec": {"nodeName": "node-1"}, "status": {"conditions": []}}
        [init_container] = daemon_set["spec"]["template"]["spec"]["initContainers"]
        (folder / "state.new").write_text(json.dumps({"token": "t", "pods": {}, "objects": {
            "/apis/apps/v1/namespaces/gpuloom-system/daemonsets/gpuloom-drain": {
                "metadata": {"generation": 1}, "spec": daemon_set["spec"],
                "status": {"observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": nodes_done}},
            f"{path}?labelSelector={selector}": {"items": [pod]},
            f"{path}/gpuloom-drain-x/log?container={init_container['name']}&tailLines=1": line}}))
        (folder / "state.new").rename(folder / "state.json")
        if not (folder / "port").exists():
            server = self.Start(sys.executable, ROOT / "tests/fake_api_server/fake_api_server.py", folder, log="api-server.log")
            self.addCleanup(server.wait)
            self.addCleanup(server.kill)
            server.stdin.close()
            server.stdout.close()
            end = time.monotonic() + PATIENCE
            while not (folder / "port").exists():
                self.assertLess(time.monotonic(), end, self.Log("api-server.log"))
                time.sleep(0.05)
            (folder / "account/namespace").write_text("gpuloom-system")
        [program] = container["command"]
        return subprocess.run([BUILD / "bin" / pathlib.Path(program).name, *container["args"], "--service-account", folder / "account",
                               "--api-server", f"https://127.0.0.1:{(folder / 'port').read_text()}"],
                              capture_output=True, text=True, check=False, timeout=PATIENCE)

    def test_uninstalling_waits_for_who_holds_slots_and_then_leaves_nothing(self):
        stop = self.folder / "stop"
        pods = [{"namespace": "team-a", "name": "train-7", "slots": 2,
                 "command": ["bash", "-c", 'until [[ -e $1 ]]; do sleep 0.1; done', "pod", str(stop)]}]
        kubelet, agent = self.StartNode(pods, "--grace-seconds", "0", "--missing-seconds", "1")
        self.Await(lambda: "team-a/train-7" in self.Log("agent.log"))
        drain = self.StartScript("drain-node.sh", self.state)
        said = drain.stdout.readline()
        self.assertEqual(said, "waits for pods that hold slots: team-a/train-7\n")
        waited = self.Wait(0, said)
        self.assertEqual(waited.returncode, 1, waited.stderr)
        self.assertIn("gpuloom-drain: not done within", waited.stderr)
        self.assertIn("node-1: waits for pods that hold slots: team-a/train-7", waited.stderr)
        self.assertIsNone(drain.poll())
        stop.touch()
        self.assertEqual(drain.stdout.read(), "nobody holds slots\n")
        self.assertEqual(drain.wait(PATIENCE), 0)
        kubelet.stdin.close()
        kubelet.wait(PATIENCE)
        waited = self.Wait(1, "nobody holds slots")
        self.assertEqual(waited.returncode, 0, waited.stderr)
        self.RemoveAll(agent)

    def test_uninstalling_waits_for_who_holds_slots_without_agent_and_schedulers_too(self):
        stop = self.folder / "stop"
        pods = [{"namespace": "team-a", "name": "train-7", "slots": 2,
                 "command": ["bash", "-c", 'until [[ -e $1 ]]; do sleep 0.1; done', "pod", str(stop)]}]
        flags = ("--grace-seconds", "0", "--missing-seconds", "1")
        kubelet, agent = self.StartNode(pods, *flags)
        self.Await(lambda: "team-a/train-7" in self.Log("agent.log"))
        agent.kill()
        agent.wait(PATIENCE)
        demo.SignalDescendants(signal.SIGKILL, "gpuloom-scheduler")
        waits = ("waits for pods that hold slots: team-a/train-7", "; no agent is in charge, so slots of pods that have ended")
        drain = self.StartScript("drain-node.sh", self.state)
        self.assertIn("".join(waits), drain.stdout.readline())
        # A scheduler that starts again knows nobody until an agent tells it.
        schedulers = self.StartAgent("--schedulers", "only")
        asked = [BUILD / "bin/gpuloom", "tenants", "--state-dir", self.state]
        self.Await(lambda: "does not know who holds slots there: team-a/train-7" in subprocess.run(
            asked, capture_output=True, text=True, check=False).stderr)
        ordered = subprocess.run([BUILD / "bin/gpuloom", "drain", "--state-dir", self.state, "--wait", "--timeout", "1s"],
                                 capture_output=True, text=True, check=False, timeout=PATIENCE)
        self.assertEqual(ordered.returncode, 3, ordered.stderr)
        self.assertRegex(ordered.stdout, r"team-a +train-7 .* 2 +- +not served\n")
        self.assertIn("/main".join(waits), ordered.stderr)
        self.assertIsNone(drain.poll())
        schedulers.terminate()
        schedulers.wait(PATIENCE)
        agent = self.StartAgent(*flags)
        stop.touch()
        self.assertTrue(drain.stdout.read().endswith("nobody holds slots\n"))
        self.assertEqual(drain.wait(PATIENCE), 0)
        kubelet.stdin.close()
        kubelet.wait(PATIENCE)
        self.RemoveAll(agent)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_name:
        RENDERING = Rendering(pathlib.Path(folder_name))
        unittest.main()
