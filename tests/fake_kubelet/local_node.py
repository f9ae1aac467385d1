# SPDX-License-Identifier: Apache-2.0
"""A node on this machine, for tests by script: schedulers, an agent and the kubelet stand-in, with software GPUs. Each program
may come from another build."""

import ctypes
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
import demo  # noqa: E402

PATIENCE = 60  # long against what anything here takes on a machine that is busy
NODE = "node-1"  # in its cluster


class Trouble(Exception):
    pass


def Files(folder):
    """Everything below it, sockets and folders included."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


class LocalNode:
    """`settings`: the software GPU's variables. Logs lie in `folder` under the names of who writes them."""

    def __init__(self, purpose, gpus, slots, settings):
        self.gpus, self.slots = gpus, slots
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"gpuloom-{purpose}-"))
        self.state, self.kubelet_dir, self.tmp = (self.folder / name for name in ("state", "kubelet", "tmp"))
        self.tmp.mkdir()
        self.folder.chmod(0o755)  # executors, who are other users, reach what they share
        self.tmp.chmod(0o1777)
        self.policy = self.folder / "policy.yaml"
        self.environment = dict(os.environ, TMPDIR=str(self.tmp), GPULOOM_SOFTGPU_DEVICES=str(gpus), **settings)
        self.results = queue.Queue()  # what the kubelet stand-in says of pods that have ended

    def Start(self, *command, log, **rest):
        with open(self.folder / log, "ab") as errors:
            return subprocess.Popen(list(map(str, command)), stderr=errors, env=self.environment, text=True, **rest)

    def StartSchedulers(self, build, *flags):
        ctypes.CDLL(None, use_errno=True).prctl(demo.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.schedulers = self.Start(build / "bin/gpuloom-agent", "--schedulers=only", *self.Common(build), *flags, log="schedulers.log")

    def StartAgent(self, build, *flags):
        self.agent_build = build
        return self.Start(build / "bin/gpuloom-agent", "--schedulers=adopt", *self.Common(build), "--policy", self.policy,
                          "--kubelet-dir", self.kubelet_dir / "device-plugins", "--pod-resources-socket",
                          self.kubelet_dir / "pod-resources/kubelet.sock", "--grace-seconds", 0, "--missing-seconds", 1, *flags,
                          log="agent.log")

    def Common(self, build):
        return ["--state-dir", self.state, "--softgpu", build / "lib/softgpu/libcuda.so.1", "--slots", self.slots]

    def StartApiServer(self):
        """The flags of an agent that tells it events, of the pods that KnowPods names."""
        api = self.folder / "api"
        api.mkdir()
        self.KnowPods({})
        self.Start(sys.executable, "-B", ROOT / "tests/fake_api_server/fake_api_server.py", api, log="api.log")
        self.Until((api / "port").exists, "the API server does not begin")
        return ["--events", "--node-name", NODE, "--api-server", f"https://127.0.0.1:{(api / 'port').read_text()}",
                "--service-account", api / "account"]

    def KnowPods(self, uids):
        """Which pods the API server has on this node: their UIDs by NAMESPACE/POD."""
        state = self.folder / "api/state.json"
        new = state.with_suffix(".new")
        new.write_text(json.dumps({"token": "first", "pods": {name: {"uid": uid, "node": NODE} for name, uid in uids.items()}}))
        new.rename(state)

    def ApiCalls(self):
        """What the API server was asked."""
        return map(json.loads, (self.folder / "api/log").read_text().splitlines())

    def StartKubelet(self, build):
        self.kubelet = self.Start(build / "bin/fake-kubelet", "--dir", self.kubelet_dir, "--scenario", "-", "--ready",
                                  "--wait-devices", self.gpus * self.slots, log="kubelet.log", stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        threading.Thread(target=self.Listen, daemon=True).start()

    def Listen(self):
        for line in self.kubelet.stdout:
            result = json.loads(line)
            if "pod" in result:
                self.results.put(result)

    def StartPod(self, pod):
        self.kubelet.stdin.write(json.dumps(pod) + "\n")
        self.kubelet.stdin.flush()

    def ReplaceAgent(self, build, *flags):
        """As a rollout does: the old one ends when the new one is ready. Disturbs nobody."""
        log = self.folder / "agent.log"
        before = log.stat().st_size
        successor = self.StartAgent(build, *flags)
        # A probe here would be answered by the old one, too.
        self.Until(lambda: b"agent: ready" in log.read_bytes()[before:], "the next agent does not become ready")
        self.agent.send_signal(signal.SIGTERM)
        self.agent.wait(PATIENCE)
        self.agent = successor
        self.Until(self.ProbeIsReady, "the agent is not ready after it was replaced")

    def Until(self, condition, complaint):
        begin = time.monotonic()
        while not condition():
            if time.monotonic() - begin > PATIENCE:
                there = Files(self.tmp) + Files(self.state)
                raise Trouble(f"{complaint}; there are {demo.Descendants()} and {there}\n{self.Tail('agent.log')}{self.Tail('schedulers.log')}")
            time.sleep(0.05)

    def Tail(self, name):
        log = self.folder / name
        return "\n".join(log.read_text(errors="replace").splitlines()[-5:] if log.exists() else []) + "\n"

    def Gpuloom(self, build, *words, **rest):
        """A command of the operator's program, as a process that has begun."""
        return self.Start(build / "bin/gpuloom", *words, "--state-dir", self.state, log="gpuloom.log", stdout=subprocess.PIPE, **rest)

    def ProbeIsReady(self):
        probe = subprocess.run([self.agent_build / "bin/gpuloom-agent", "--probe-ready", "--kubelet-dir", self.kubelet_dir / "device-plugins"],
                               capture_output=True, check=False)
        return probe.returncode == 0

    def End(self, keeps_logs=False):
        demo.SignalDescendants(signal.SIGKILL)
        demo.WaitUntilAlone(PATIENCE)
        if keeps_logs:
            print(f"logs: {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
