#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A node under use for a long time: pods come and go beside a kubelet stand-in, on software GPUs; policies change, agents are
replaced, GPUs drained, tenants, executors and schedulers are killed; it is watched, traced and looked at meanwhile. Whoever is
not disturbed must end as it should, no counter may go back, and nothing may grow: memory, descriptors and threads of the
processes that stay, files on the node.

usage: soak.py --build BUILD [--seconds N] [--seed N] [--out FILE.md]

It goes by rounds: a while of use, then everybody is let end and the node rests, and is looked at. Exit status 1 if something
went wrong or grows; the report says what.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import signal
import socket
import sys
import time

import figures
import pods
import report
import watching

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fake_kubelet"))
from local_node import PATIENCE, Files, LocalNode, Trouble, demo  # noqa: E402

GPUS, SLOTS = 2, 20
AT_ONCE = 4
NAMESPACES = ("team-a", "team-b", "sandbox")
# CUPTI, if the machine has it, knows nothing of software GPUs.
SETTINGS = {"GPULOOM_SOFTGPU_MEMORY": "2GiB", "GPULOOM_SOFTGPU_QUIET": "1", "GPULOOM_EXECUTOR_CUPTI": "off"}
WRONG_POLICY = "defaults: {memory: lots}\n"
# Lives that are looked at so often are judged.
LEAST_LOOKS = 4
# Of all pods, as those of Jobs. The others' names come again, as those of StatefulSets.
NEW_NAMES = 0.1
# As many as the API server remembers: more than run, and than events wait for.
KNOWN_PODS = 100
TRACE_SECONDS = 0.5
# Why a pod is refused that nothing disturbs: the slots were given to a pod of another resource a moment before.
RACES = (" is a part of ", ", fewer than ")
# Sockets that hold ports until this process ends.
RESERVED = []


def FreePort():
    """One that is free, below those that the kernel gives to connections. The same port of 127.0.0.2 is this process's until it
    ends, so that nobody else who asks so is given it before it is used."""
    for port in itertools.count(20000 + os.getpid() % 10000):
        reserved = socket.socket()
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                reserved.bind(("127.0.0.2", port))
                taken.bind(("127.0.0.1", port))
                RESERVED.append(reserved)
                return port
            except OSError:
                reserved.close()


class Soak(LocalNode):
    def __init__(self, build, seed):
        super().__init__("soak", GPUS, SLOTS, SETTINGS)
        self.build = build
        self.random = random.Random(seed)
        self.running = {}  # (namespace, pod): (kind, begin)
        self.known = {}  # UIDs by NAMESPACE/POD of the latest, in their order
        self.disturbed = []  # (begin, end) in which whatever runs may fail
        self.drains = []  # (begin, end) in which whoever has not begun may be refused
        self.drained = ""  # the GPU
        self.watcher = None
        self.trace = None
        self.trace_events = 0
        self.counts = {}
        self.wrong = []
        self.lives = {}
        self.rests = []  # (round, files of the node, executors)
        self.last_number = self.restarts = 0
        self.last_phases = {}  # of pods that have ended, as `running`
        self.recovery_seconds = {}  # the longest until the next tenant had computed, by what had happened
        self.last_restart = -1
        self.round = 0

    def Begin(self, look_pause):
        self.WritePolicy(wrong=False)
        self.StartSchedulers(self.build, "--idle-timeout", "500ms", "--spare-executors", 1)
        port = FreePort()
        self.flags = ["--metrics-address", f"127.0.0.1:{port}", "--slot-shapes", "2", *self.StartApiServer()]
        self.agent = self.StartAgent(self.build, *self.flags)
        self.StartKubelet(self.build)
        self.Until(self.ProbeIsReady, "the agent does not become ready")
        self.watcher = watching.Watcher(port, PATIENCE)
        self.watcher.Start(look_pause)
        with self.watcher.Gap():
            pass

    def Named(self, name):
        return [pid for pid, found in demo.Descendants().items() if found == name[:15]]

    def Count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    # What happens.

    def WritePolicy(self, wrong):
        text = WRONG_POLICY
        if not wrong:
            text = "defaults: {trustDomain: namespace}\nnamespaces:\n" + "".join(
                f"  {name}: {{weight: {self.random.choice((50, 100, 300))}, memory: {self.random.choice((32, 48, 64))}MiB, "
                f"timeShareMax: {self.random.choice((50, 80, 100))}%}}\n" for name in NAMESPACES)
        new = self.policy.with_suffix(".new")
        new.write_text(text)
        new.rename(self.policy)
        self.Count("wrong policies" if wrong else "policies")
        if wrong:
            self.Until(lambda: not self.ProbeIsReady(), "a wrong policy is not told")

    def NewName(self):
        self.last_number += 1
        return f"job-{self.last_number}"

    def StartAPod(self, kind=None):
        namespace = self.random.choice(NAMESPACES)
        if kind or self.random.random() < NEW_NAMES:
            name = self.NewName()
        else:
            name = next(name for name in map("set-{}".format, itertools.count()) if (namespace, name) not in self.running)
        kind = kind or self.random.choice(("computes", "computes", "computes", "greedy", "dies", "killed"))
        pod = pods.Pod(kind, namespace, name, self.random, sys.executable)
        self.known.pop(f"{namespace}/{name}", None)
        self.known[f"{namespace}/{name}"] = f"uid-{self.random.getrandbits(64):x}"
        if len(self.known) > KNOWN_PODS:
            self.known.pop(next(iter(self.known)))
        self.KnowPods(self.known)
        self.running[namespace, name] = (kind, time.monotonic())
        self.StartPod(pod)
        return namespace, name

    def KillWhoSits(self, least_age):
        """Tenants whose kind is to be killed, once they are old enough."""
        for pod, (kind, begin) in list(self.running.items()):
            if kind == "killed" and time.monotonic() - begin > least_age:
                for pid in demo.Descendants():
                    try:
                        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                        if len(words) > 2 and words[-2] == "/".join(pod).encode():
                            os.kill(pid, signal.SIGKILL)
                            self.Count("tenants killed")
                    except OSError:
                        pass  # it has ended

    def TakeResults(self):
        while not self.results.empty():
            result = self.results.get()
            pod = result["namespace"], result["pod"]
            kind, begin = self.running.pop(pod)
            end = time.monotonic()
            self.Count("pods")
            self.Count(f"pods that {result['phase'].lower()}")
            self.last_phases[pod] = result["phase"]
            message = result.get("message") or ""

            def Met(windows):
                return any(first <= end and begin <= last for first, last in windows)

            may_fail = Met(self.disturbed)
            if result["phase"] == "Refused":
                may_fail |= any(race in message for race in RACES) or "drained by operator" in message and Met(self.drains)
            if result["phase"] != pods.KINDS[kind].phase and not may_fail:
                self.wrong.append(f"{'/'.join(pod)}, which {kind}: {result['phase']}: {message} "
                                  f"{result.get('stdout', '')[-200:]} {result.get('stderr', '')[-500:]}")

    def Disturb(self, what, act, settle=0):
        """Whoever runs while `act` does may fail, and whoever is admitted until the node serves the next one."""
        self.TakeTrace(waits=True)
        self.WritePolicy(wrong=False)
        begin = time.monotonic()
        self.disturbed.append((begin, float("inf")))
        act()
        self.Until(self.ProbeIsReady, f"the node is not ready after: {what}")
        self.Until(self.ServesTheNext, f"nobody is served after: {what}")
        self.recovery_seconds[what] = max(self.recovery_seconds.get(what, 0), time.monotonic() - begin)
        self.Until(lambda: self.ServesTheNext() and time.monotonic() - begin > settle, f"nobody is served after: {what}")
        self.disturbed[-1] = (begin, time.monotonic())
        self.Count(what)

    def ServesTheNext(self):
        self.last_phases.clear()
        pod = self.StartAPod("computes")
        self.Until(lambda: self.TakeResults() or pod in self.last_phases, "a pod does not end")
        return self.last_phases[pod] == "Succeeded"

    def RollAgent(self):
        self.WritePolicy(wrong=False)
        with self.watcher.Gap():
            self.ReplaceAgent(self.build, *self.flags)
        self.Count("agents replaced")

    def KillAgent(self):
        def Act():
            self.agent.kill()
            self.agent.wait(PATIENCE)
            self.agent = self.StartAgent(self.build, *self.flags)

        with self.watcher.Gap():
            # A kubelet that notices the end of the old one late drops the new one, which registers again.
            self.Disturb("agents killed", Act, settle=5)

    def Kill(self, program):
        """One of them, if there is one."""
        alive = self.Named(program)
        if alive:
            demo.Signal(self.random.choice(alive), signal.SIGKILL)

    # What an operator does.

    def Ask(self, *words):
        """What a command of the operator's program says; it must be content."""
        command = self.Gpuloom(self.build, *words)
        said = command.communicate(timeout=PATIENCE)[0]
        if command.returncode != 0:
            self.wrong.append(f"gpuloom {' '.join(words)}: exit status {command.returncode}: {said}{self.Tail('gpuloom.log')}")
        return said

    def Sample(self):
        """`gpuloom top`, and a trace of what runs from now on."""
        shown = self.Ask("top", "--once", "-o", "json")
        if len(json.loads(shown or "{}").get("gpus", [])) != GPUS:
            self.wrong.append(f"gpuloom top does not show both GPUs: {shown}")
        self.trace = self.Gpuloom(self.build, "trace", "--seconds", str(TRACE_SECONDS), "-o", self.folder / "trace.json")

    def TakeTrace(self, waits=False):
        """Of the one that was begun, if it is done."""
        if self.trace is None or not waits and self.trace.poll() is None:
            return
        said = self.trace.communicate(timeout=PATIENCE)[0]
        # 3: an executor has ended meanwhile, as those of tenants that are gone do.
        if self.trace.returncode not in (0, 3):
            self.wrong.append(f"gpuloom trace: exit status {self.trace.returncode}: {said}{self.Tail('gpuloom.log')}")
        else:
            events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
            self.trace_events += sum(event["ph"] == "X" for event in events)
        self.trace = None
        self.Count("traces")

    def Drain(self):
        """Nobody new gets the fuller GPU. Who is there goes on, and who comes gets the other one."""
        gpu, other = sorted((gpu["gpu"] for gpu in self.watcher.state["gpus"]),
                            key=lambda gpu: -self.watcher.Gpu(gpu)["slots_allocated"])
        self.drains.append((time.monotonic(), float("inf")))
        self.drained = gpu
        self.Ask("drain", gpu, "--reason", "soak")
        self.Until(lambda: self.watcher.Gpu(gpu)["state"] == "drained", f"GPU {gpu} is not drained")
        self.Until(self.ServesTheNext, "nobody is served beside a drained GPU")
        self.drains[-1] = (self.drains[-1][0], time.monotonic())
        before = self.watcher.Busy(other)
        self.Until(lambda: self.ServesTheNext() and self.watcher.Busy(other) > before, f"nobody computes on GPU {other}")

    def GiveBack(self):
        self.Ask("drain", "--undo", self.drained)
        self.Until(lambda: self.watcher.Gpu(self.drained)["state"] == "healthy", f"GPU {self.drained} stays drained")
        self.Count("GPUs drained")

    def Use(self, seconds, may_restart, may_drain):
        """Pods, policies, commands and deaths for a while, and until all that was to happen has."""
        end = time.monotonic() + seconds
        next_policy = time.monotonic() + self.random.uniform(0, seconds / 2)
        events = [(time.monotonic() + seconds * part, event) for part, event in self.Events(may_restart, may_drain)]
        while events or time.monotonic() < end:
            self.TakeResults()
            self.TakeTrace()
            if self.schedulers.poll() is not None or self.kubelet.poll() is not None or self.agent.poll() is not None:
                raise Trouble(f"a process has ended by itself\n{self.Tail('agent.log')}{self.Tail('schedulers.log')}")
            if len(self.running) < AT_ONCE:
                self.StartAPod()
            self.KillWhoSits(self.random.uniform(0.5, 2))
            if time.monotonic() >= next_policy:
                next_policy = max(end, time.monotonic() + seconds)
                if self.random.random() < 0.3:
                    self.WritePolicy(wrong=True)
                else:
                    self.WritePolicy(wrong=False)
            if events and time.monotonic() >= events[0][0]:
                events.pop(0)[1]()
            time.sleep(0.05)

    def Events(self, may_restart, may_drain):
        """(at which part of the time, what) in their order."""
        events = [(0.05, self.Sample), (0.3, lambda: self.Disturb("executors killed", lambda: self.Kill("gpuloom-executor")))]
        if may_restart:
            kinds = [self.RollAgent, lambda: self.Disturb("schedulers killed", lambda: self.Kill("gpuloom-scheduler")), self.KillAgent]
            self.last_restart = self.round
            self.restarts += 1
            events.append((0.6, kinds[self.restarts % len(kinds)]))
        if may_drain:
            events += [(0.5, self.Drain), (0.9, self.GiveBack)]
        return events

    # Rest.

    def Rest(self):
        self.TakeTrace(waits=True)
        self.WritePolicy(wrong=False)
        begin = time.monotonic()
        while self.running:
            if time.monotonic() - begin > PATIENCE:
                raise Trouble(f"pods do not end: {self.running}")
            self.KillWhoSits(0)
            self.TakeResults()
            time.sleep(0.05)
        # Each scheduler keeps one for whoever comes next.
        self.Until(lambda: len(self.Named("gpuloom-executor")) == GPUS, "executors stay")
        self.Until(lambda: self.ProbeIsReady() and len(list(self.tmp.iterdir())) == GPUS, "executors' folders stay")
        self.Until(lambda: not list((self.state / "allocations").glob("*")), "allocations stay")
        with self.watcher.mutex:
            looks = [figures.Look(pid, name) for pid, name in [
                (self.agent.pid, "agent"), (self.schedulers.pid, "schedulers' parent"),
                *((pid, "scheduler") for pid in self.Named("gpuloom-scheduler"))]]
        for look in filter(None, looks):
            self.lives.setdefault(look.pid, figures.Life(look.name, look.pid)).looks.append((self.round, look))
        # Without one that is written just now.
        self.Until(lambda: not list(self.state.rglob("*.new")), "unfinished files stay")
        self.rests.append((self.round, Files(self.state) + Files(self.kubelet_dir / "device-plugins")))

    def Run(self, seconds, pause, look_pause):
        begin = time.monotonic()
        self.Begin(look_pause)
        # Restarts in the first half only, so that there are lives that are long enough to be judged.
        is_short = seconds < 120
        while not self.wrong and not self.watcher.wrong:
            passed = (time.monotonic() - begin) / seconds
            if passed >= 1 and self.round - self.last_restart > LEAST_LOOKS:
                break
            may_restart = self.round < 3 if is_short else passed < 0.5 and self.round % 3 == 1
            may_drain = self.round in (3, 4) if is_short else self.round % 3 == 2
            self.Use(pause, may_restart, may_drain)
            self.Rest()
            self.round += 1
        self.seconds = time.monotonic() - begin
        self.wrong += figures.Judge(self.lives.values(), LEAST_LOOKS)
        self.wrong += figures.NewFiles(self.rests[0][1], self.rests[-1][1])
        self.JudgeWhatWasSeen()

    def JudgeWhatWasSeen(self):
        """Whether those who watched have had something to see."""
        told = [call["body"].get("reason") for call in self.ApiCalls() if call["method"] != "GET" and call["status"] in (200, 201)]
        for reason in ("GpuMemoryRefused", "GpuDrained", "GpuHealthy"):
            if reason not in told:
                self.wrong.append(f"the API server was told of no {reason}")
        if self.trace_events == 0:
            self.wrong.append("nothing is in any trace")
        self.counts["events"] = len(told)
        self.counts["looks"] = self.watcher.looks

def Main():
    parser = argparse.ArgumentParser(description="A node under use for a long time.")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--round-seconds", type=float, default=10)
    parser.add_argument("--look-seconds", type=float, default=1, help="between two looks at what the agent serves")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"soak: seed {seed}", flush=True)
    soak = Soak(arguments.build.resolve(), seed)
    try:
        soak.Run(arguments.seconds, arguments.round_seconds, arguments.look_seconds)
    except Trouble as trouble:
        soak.wrong.append(str(trouble))
    finally:
        if soak.watcher:
            soak.watcher.Stop()
            soak.wrong += soak.watcher.wrong
        text = report.Text(soak, seed)
        soak.End(keeps_logs=bool(soak.wrong))
    print(text)
    if arguments.out:
        arguments.out.write_text(text)
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(Main())
