#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An upgrade of a node and its way back, with the programs of a recorded release and of this build: on software GPUs, beside a
kubelet stand-in. Tenants that compute meanwhile go on, each new pod is served, whichever of the two releases agent and
schedulers are of; only new schedulers, which carry the tenants, end them.

usage: upgrade.py --build BUILD [--release VERSION] [--previous BUILD]

Without --previous the release (by default the newest recorded) is taken from the history and built in build/previous first.
Exit status 1 if something went wrong; its last line says what.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import releases

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fake_kubelet"))
from local_node import PATIENCE, ROOT, LocalNode, Trouble  # noqa: E402

GPUS, SLOTS = 1, 10
SETTINGS = {"GPULOOM_SOFTGPU_MEMORY": "1GiB", "GPULOOM_SOFTGPU_QUIET": "1"}
POLICY = "defaults: {trustDomain: namespace}\nnamespaces:\n  team-a: {memory: 64MiB}\n"
PROGRAMS = ["gpuloom-agent", "gpuloom-scheduler", "gpuloom-executor", "gpuloom_shim", "gpuloom_nvml", "gpuloom_softgpu"]

# A tenant without a toolkit: computes, counts its rounds in a file, checks each, until the file has another one beside it.
TENANT = """
import ctypes, os, sys
rounds_file = sys.argv[1]
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status != 0:
        sys.exit(f"{name}: {status}")
context, memory, stream = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuStreamCreate", ctypes.byref(stream), 1)
words = 1 << 16
back = (ctypes.c_uint32 * words)()
number = 0
while not os.path.exists(rounds_file + ".end"):
    number += 1
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4 * words))
    call("cuMemsetD32Async", memory, number, ctypes.c_size_t(words), stream)
    call("cuMemcpyDtoHAsync_v2", back, memory, ctypes.c_size_t(4 * words), stream)
    call("cuStreamSynchronize", stream)
    if back[0] != number or back[-1] != number:
        sys.exit(f"round {number}: read {back[0]}, {back[-1]}")
    call("cuMemFree_v2", memory)
    with open(rounds_file + ".new", "w") as file:
        file.write(str(number))
    os.rename(rounds_file + ".new", rounds_file)
"""


class Upgrade(LocalNode):
    def __init__(self, new, old):
        super().__init__("upgrade", GPUS, SLOTS, SETTINGS)
        self.new, self.old = new, old
        self.policy.write_text(POLICY)
        self.last_name = 0

    # Pods.

    def Tenant(self):
        """One that computes until it is let end."""
        self.last_name += 1
        name = f"pod-{self.last_name}"
        self.StartPod({"namespace": "team-a", "name": name, "slots": 1, "timeoutSeconds": 600,
                       "command": [sys.executable, "-c", TENANT, str(self.tmp / name)]})
        self.Advances(name)
        return name

    def Rounds(self, name):
        try:
            return int((self.tmp / name).read_text())
        except FileNotFoundError:
            return 0

    def Advances(self, name):
        begin = self.Rounds(name)
        self.Until(lambda: self.Rounds(name) > begin + 2 or not self.results.empty(), f"{name} does not compute")
        if not self.results.empty():
            raise Trouble(f"a pod has ended: {self.results.get()}\n{self.Tail('agent.log')}{self.Tail('schedulers.log')}")

    def LetEnd(self, name, phase="Succeeded"):
        (self.tmp / f"{name}.end").touch()
        result = self.results.get(timeout=PATIENCE)
        if (result["pod"], result["phase"]) != (name, phase):
            raise Trouble(f"{name} should have {phase.lower()}: {result}")

    def ServesANewOne(self):
        self.LetEnd(self.Tenant())

    def Given(self):
        """What containers have mounted of the state folder beside their sockets."""
        return sorted(path for folder in ("shim", "programs") for path in (self.state / folder).glob("*"))

    def StillGives(self, files, tenants):
        """A container that starts again finds what it was given, also when the agent has cleared up."""
        self.Until(lambda: len(list((self.state / "allocations").iterdir())) == tenants, "ended pods are not collected")
        self.ServesANewOne()
        lost = [str(path) for path in files if not path.exists()]
        if lost:
            raise Trouble(f"the agent has deleted what running containers have mounted: {lost}")

    def Shows(self, build, names):
        """`gpuloom tenants`, which came after 0.2.0, knows the pods."""
        shown = subprocess.run([build / "bin/gpuloom", "tenants", "-o", "json", "--state-dir", self.state], capture_output=True,
                               text=True, check=False)
        for name in names:
            if name not in shown.stdout:
                raise Trouble(f"gpuloom tenants does not show {name}: {shown.returncode} {shown.stdout} {shown.stderr}")

    # Steps.

    def Begin(self, schedulers, agent):
        self.StartSchedulers(schedulers)
        self.agent = self.StartAgent(agent)
        self.StartKubelet(self.new)
        self.Until(self.ProbeIsReady, "the agent does not become ready")

    def ReplaceSchedulers(self, build):
        """As when the schedulers' pod is deleted: nobody is served meanwhile, and tenants end."""
        self.schedulers.terminate()
        self.schedulers.wait(PATIENCE)
        self.StartSchedulers(build)
        self.Until(self.ProbeIsReady, "the agent does not find the new schedulers")

    def Run(self):
        say("schedulers and agent of the release before")
        self.Begin(self.old, self.old)
        old = self.Tenant()
        say("the agent of this one")
        self.ReplaceAgent(self.new)
        self.Advances(old)
        new = self.Tenant()
        given = self.Given()
        self.ServesANewOne()
        self.Shows(self.new, [old, new])
        say("and back")
        self.ReplaceAgent(self.old)
        self.Advances(old)
        self.Advances(new)
        self.ServesANewOne()
        self.StillGives(given, 2)
        say("schedulers of this one under the agent of the release before")
        self.LetEnd(old)
        (self.tmp / f"{new}.end").touch()
        self.results.get(timeout=PATIENCE)
        self.ReplaceSchedulers(self.new)
        tenant = self.Tenant()
        self.ServesANewOne()
        say("both of this one")
        self.ReplaceAgent(self.new)
        self.Advances(tenant)
        self.ServesANewOne()
        self.Shows(self.new, [tenant])
        self.LetEnd(tenant)


def say(what):
    print(f"upgrade: {what}", flush=True)


def Built(version):
    """The release's programs."""
    version = version or releases.Releases()[0]["version"]
    sources = ROOT / "build/previous" / version
    if not sources.exists():
        releases.Take(sources, version)
    build = sources / "build/release"
    log = sources / "build.log"
    say(f"builds {version}, see {log.relative_to(ROOT)}")
    with open(log, "w") as out:
        for command in (["cmake", "--preset", "release"],
                        ["cmake", "--build", "--preset", "release", "-j", str(os.cpu_count()), "--target", *PROGRAMS]):
            if subprocess.run(command, cwd=sources, stdout=out, stderr=subprocess.STDOUT, check=False).returncode:
                sys.exit(f"upgrade: {version} does not build: {log}")
    return build


def Main():
    parser = argparse.ArgumentParser(description="An upgrade of a node and its way back.")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--release")
    parser.add_argument("--previous", type=pathlib.Path)
    arguments = parser.parse_args()
    old = arguments.previous.resolve() if arguments.previous else Built(arguments.release)
    upgrade = Upgrade(arguments.build.resolve(), old)
    is_right = False
    try:
        upgrade.Run()
        is_right = True
    except Trouble as trouble:
        say(f"wrong: {trouble}")
    finally:
        upgrade.End(keeps_logs=not is_right)
    if not is_right:
        return 1
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(Main())
