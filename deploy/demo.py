#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo: a kubelet stand-in, the agent, a scheduler per GPU, and pods of two namespaces that run CUDA programs, built
with the static and the shared CUDA runtime, at the same time on the same GPUs. Prints one line per pod.

usage: demo.py --build DIR [--softgpu]

Everything that is started is a descendant of this process, orphans included, so that it can say whether anything is left.
"""

import argparse
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOFTWARE_GPUS = 2
SLOTS = 20  # of all GPUs together
SOFTWARE_GPU_MEMORY = "4GiB"

# namespace, pod, slots, program, runtime, arguments. More slots than one software GPU has.
PODS = [
    ("team-a", "vadd-1", 4, "vadd", "static", []),
    ("team-a", "matmul-1", 2, "matmul", "shared", []),
    ("team-a", "reduce-1", 1, "reduce", "static", []),
    ("team-a", "streams-1", 2, "streams", "shared", []),
    ("team-b", "vadd-2", 2, "vadd", "shared", []),
    ("team-b", "matmul-2", 1, "matmul", "static", []),
    ("team-b", "reduce-2", 3, "reduce", "shared", []),
    ("team-b", "streams-2", 1, "streams", "static", []),
    ("team-b", "greedy", 1, "oom", "static", []),  # takes what it may, asks for more, and is refused
]
REFUSED = {"greedy"}

# team-b's pods get a fixed part of the GPU per slot, team-a's an equal part of what there is.
POLICY = """defaults:
  trustDomain: namespace
namespaces:
  team-b:
    memory: 256MiB
"""

PR_SET_CHILD_SUBREAPER = 36


def Descendants():
    """Living descendants of this process: {pid: name}."""
    parents, names = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # gone meanwhile
        head, tail = text.rsplit(")", 1)
        state, parent = tail.split()[:2]
        if state != "Z":
            parents[int(entry.name)] = int(parent)
            names[int(entry.name)] = head.split("(", 1)[1]
    found = {}
    for pid in parents:
        ancestor = pid
        while ancestor in parents:
            ancestor = parents[ancestor]
            if ancestor == os.getpid():
                found[pid] = names[pid]
                break
    return found


def WaitUntilAlone(seconds):
    """Descendants that are still there when the time is up."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        left = Descendants()
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def WriteScenario(path, programs):
    lines = ["pods:"]
    for namespace, pod, slots, program, runtime, arguments in PODS:
        command = ", ".join(json.dumps(word) for word in [str(programs / f"{program}_{runtime}"), *arguments])
        lines += [f"  - namespace: {namespace}", f"    name: {pod}", f"    slots: {slots}",
                  f"    command: [{command}]", "    timeoutSeconds: 300"]
    path.write_text("\n".join(lines) + "\n")


class Demo:
    def __init__(self, build, software):
        self.build = build.resolve()
        self.software = software
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuloom-demo-"))
        self.agent = self.kubelet = None

    def Run(self):
        """The pods' results, as fake-kubelet tells them."""
        programs = self.build / "tests" / "programs"
        binaries = self.build / "bin"
        policy, scenario = self.folder / "policy.yaml", self.folder / "scenario.yaml"
        policy.write_text(POLICY)
        WriteScenario(scenario, programs)
        environment = dict(os.environ, GPULOOM_SOFTGPU_DEVICES=str(SOFTWARE_GPUS),
                           GPULOOM_SOFTGPU_MEMORY=SOFTWARE_GPU_MEMORY, GPULOOM_SOFTGPU_QUIET="1")
        slots_per_gpu = SLOTS // SOFTWARE_GPUS if self.software else SLOTS
        kubelet_folder = self.folder / "kubelet"
        with open(self.folder / "kubelet.log", "wb") as log:
            self.kubelet = subprocess.Popen(
                [binaries / "fake-kubelet", "--dir", kubelet_folder, "--scenario", scenario, "--ready",
                 "--wait-devices", str(SLOTS)], stdout=subprocess.PIPE, stderr=log, env=environment, text=True)
        self.kubelet.stdout.readline()  # its sockets are there
        command = [binaries / "gpuloom-agent", "--state-dir", self.folder / "state", "--kubelet-dir",
                   kubelet_folder / "device-plugins", "--pod-resources-socket",
                   kubelet_folder / "pod-resources" / "kubelet.sock", "--policy", policy, "--slots",
                   str(slots_per_gpu)]
        if self.software:
            command += ["--softgpu", self.build / "lib" / "softgpu" / "libcuda.so.1"]
        with open(self.folder / "agent.log", "wb") as log:
            self.agent = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        results = {}
        for line in self.kubelet.stdout:
            try:
                result = json.loads(line)
            except ValueError:
                continue
            results[result["namespace"], result["pod"]] = result
        self.kubelet.wait()
        return results

    def Stop(self):
        """Ends everything; what would not end."""
        for process in (self.kubelet, self.agent):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    pass
        # Schedulers outlive their agent, so that an agent can be replaced: they are ended by name of their process.
        for pid, name in Descendants().items():
            if name.startswith("gpuloom-schedu"):
                os.kill(pid, signal.SIGTERM)
        left = WaitUntilAlone(60)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return left


def PrintTable(results):
    """True when every pod did what it should."""
    rows = [("POD", "NAMESPACE", "SLOTS", "QUOTA", "PROGRAM", "RESULT", "KERNELS", "REFUSED")]
    notes = []
    all_right = True
    for namespace, pod, slots, program, runtime, _ in PODS:
        result = results.get((namespace, pod), {})
        said = next((line for line in result.get("stdout", "").splitlines() if line.startswith("PASS ")), "")
        right = result.get("phase") == "Succeeded" and bool(said)
        refused = result.get("memory_refused", 0)
        if pod in REFUSED:
            right = right and refused > 0
        elif refused:
            right = False
        kernels = result.get("kernels", 0)
        right = right and kernels > 0
        all_right = all_right and right
        quota = result.get("quota_bytes")
        rows.append((pod, namespace, str(slots), f"{quota >> 20} MiB" if quota is not None else "-",
                     f"{program} ({runtime})", "correct" if right else result.get("phase", "missing").upper(),
                     str(kernels), "out of memory" if refused else "-"))
        if not right:
            notes.append(f"{namespace}/{pod}: {result.get('message', '')} {result.get('stdout', '')}"
                         f"{result.get('stderr', '')}".rstrip())
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    for note in notes:
        print(note)
    return all_right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--softgpu", action="store_true", help="software GPUs instead of the machine's own")
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))

    demo = Demo(arguments.build, arguments.softgpu)
    results = {}
    left = None
    try:
        where = f"{SOFTWARE_GPUS} software GPUs" if arguments.softgpu else "this machine's GPU"
        print(f"running {len(PODS)} pods of two namespaces on {where} …\n", flush=True)
        begin = time.monotonic()
        results = demo.Run()
        took = time.monotonic() - begin
    finally:
        left = demo.Stop()
    right = PrintTable(results)
    print(f"\n{len(results)} pods in {took:.1f} s; "
          f"{'no process is left' if not left else 'left and killed: ' + ', '.join(sorted(left.values()))}")
    if right and not left:
        shutil.rmtree(demo.folder, ignore_errors=True)
        print(f"next: {arguments.build}/bin/gpuloom run {'--softgpu ' if arguments.softgpu else ''}-- "
              f"{arguments.build}/tests/programs/vadd_static")
        return 0
    for log in sorted(demo.folder.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        print(f"-- the end of {log.name}:", *lines[-12:], sep="\n", file=sys.stderr)
    print(f"demo: not everything went right; logs: {demo.folder}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
