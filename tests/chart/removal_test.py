#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Removing gpuloom from the nodes: the value removeState, and the script that its pods run, on folders as a node has them."""

import fcntl
import os
import pathlib
import socket
import subprocess
import tempfile
import unittest

from rendering import CHART, Refusals, Rendering

SCRIPT = CHART / "scripts/remove-state.sh"
LOCKS = ["agent.lock", "agent.next", "agent.leaving", "gpus/GPU-1/lock"]
# Long against what a shell takes, when nothing happens in it.
PATIENCE = 60


class Node:
    """A state directory and the kubelet's, with what an agent and a scheduler leave there."""

    def __init__(self, folder):
        self.state, self.plugins = folder / "state", folder / "device-plugins"
        for name in ["gpus/GPU-1", "allocations/ab12", "lib"]:
            (self.state / name).mkdir(parents=True)
        for name in [*LOCKS, "last-good-policy.yaml", "lib/libgpuloom.so.0.2.0", "gpus/GPU-1/scheduler.log", ".hidden"]:
            (self.state / name).write_text("")
        (self.state / "allocations/ab12").chmod(0o500)
        (self.state / "link").symlink_to("/etc")
        self.plugins.mkdir()
        for name in ("kubelet.sock", "nvidia.sock", "gpuloom-00000001.sock"):
            Socket(self.plugins / name).close()
        (self.plugins / "kubelet_internal_checkpoint").write_text("{}")
        (self.plugins / "gpuloom-file.sock").write_text("somebody's")

    def Start(self):
        return subprocess.Popen(["bash", "-c", SCRIPT.read_text(), "remove-state", self.state, self.plugins], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, REMOVE_STATE_PAUSE="0.01"))

    def Left(self):
        return sorted(path.name for path in self.state.iterdir()), sorted(path.name for path in self.plugins.iterdir())


def Socket(path):
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


class Removal(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.node = Node(pathlib.Path(folder.name))

    def test_nothing_is_left_but_what_is_not_ours(self):
        others = ["gpuloom-file.sock", "kubelet.sock", "kubelet_internal_checkpoint", "nvidia.sock"]
        for _ in range(2):  # a node that restarts does it again
            removal = self.node.Start()
            output, errors = removal.communicate(timeout=PATIENCE)
            self.assertEqual((removal.returncode, errors), (0, ""))
            self.assertIn("nothing of gpuloom is left", output)
            self.assertEqual(self.node.Left(), ([], others))
        self.assertTrue(pathlib.Path("/etc/passwd").exists(), "a link was followed")

    def test_whoever_still_runs_is_waited_for(self):
        for name in LOCKS:
            with self.subTest(name), open(self.node.state / name, "w", encoding="ascii") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                before = self.node.Left()
                removal = self.node.Start()
                said = removal.stdout.readline()
                self.assertIn(f"{self.node.state / name} is held", said)
                self.assertEqual(self.node.Left(), before)
                self.assertIsNone(removal.poll())
                fcntl.flock(lock, fcntl.LOCK_UN)
                output, errors = removal.communicate(timeout=PATIENCE)
                self.assertEqual((removal.returncode, errors), (0, ""))
                self.assertNotIn("is held", output, "said twice")
                self.assertEqual(self.node.Left()[0], [])
            for parent in ("gpus/GPU-1",):
                (self.node.state / parent).mkdir(parents=True)
            for again in LOCKS:
                (self.node.state / again).write_text("")

    def test_the_socket_of_an_agent_that_serves_stays(self):
        listening = Socket(self.node.plugins / "gpuloom-00000002.sock")
        self.addCleanup(listening.close)
        removal = self.node.Start()
        removal.communicate(timeout=PATIENCE)
        self.assertIn("gpuloom-00000002.sock", self.node.Left()[1])
        self.assertNotIn("gpuloom-00000001.sock", self.node.Left()[1])

    def test_a_place_that_is_not_there_is_an_error(self):
        removal = subprocess.run(["bash", SCRIPT], capture_output=True, text=True, check=False)
        self.assertNotEqual(removal.returncode, 0)

    def test_the_value_puts_it_in_place_of_agent_and_schedulers(self):
        self.assertEqual(Refusals({"removeState": True}), [])
        self.assertRegex("\n".join(Refusals({"removeState": "yes"})), "removeState: 'yes' is not of type 'boolean'")
        for values in ({}, {"removeState": False}):
            self.assertNotIn(("DaemonSet", "gpuloom-removal"), RENDERING.Render(values)[0])
        manifests, text = RENDERING.Render({"removeState": True, "stateDir": "/srv/g", "kubeletDir": "/srv/kubelet",
                                            "tolerations": [{"operator": "Exists"}]})
        self.assertEqual([name for kind, name in manifests if kind in ("DaemonSet", "Pod")], ["gpuloom-removal"])
        pod = manifests["DaemonSet", "gpuloom-removal"]["spec"]["template"]["spec"]
        [removal] = pod["initContainers"]
        self.assertNotIn("runtimeClassName", pod, "it may be gone already, and no driver is needed")
        self.assertEqual(removal["command"], ["/bin/bash", "-c"])
        self.assertEqual(removal["args"][0].split(), SCRIPT.read_text().split())
        self.assertEqual(removal["args"][1:], ["removal", "/srv/g", "/srv/kubelet/device-plugins"])
        self.assertEqual([mount["mountPath"] for mount in removal["volumeMounts"]], ["/srv/kubelet/device-plugins", "/srv/g"])
        self.assertEqual([volume["hostPath"]["path"] for volume in pod["volumes"]], ["/srv/kubelet/device-plugins", "/srv/g"])
        self.assertEqual(pod["tolerations"], [{"operator": "Exists"}])
        self.assertNotIn("volumeMounts", pod["containers"][0])
        self.assertIn("rollout status daemonset/gpuloom-removal", text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_name:
        RENDERING = Rendering(pathlib.Path(folder_name))
        unittest.main()
