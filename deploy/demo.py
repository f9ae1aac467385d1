#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo: a kubelet stand-in, the agent, a scheduler per GPU, and pods of two namespaces that run CUDA programs, built
with the static and the shared CUDA runtime, at the same time on the same GPUs. Prints one line per pod. Then a pod of each
namespace wants all of one GPU's time, and the namespaces' weights say how much each gets.

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

# Two pods on one GPU that always want it, with kernels of the same length. The shares are those of the weights, as far as
# a busy machine lets them be.
CONTENDERS = [("team-a", "light", 100), ("team-b", "heavy", 300)]
CONTEND_SECONDS = 2
SHARE_OF_HEAVY = (0.6, 0.88)
# A program that gets no processor wants less than its share.
CONTESTS = 10
SHARES_POLICY = "namespaces:\n" + "".join(f"  {namespace}: {{weight: {weight}}}\n" for namespace, _, weight in CONTENDERS)
# Begins once all are ready, and ends by itself.
CONTEND = """set -e
cd {folder}
mkfifo in.$1
{program} < in.$1 > out.$1 &
exec 3> in.$1
until grep -q ready out.$1; do kill -0 $!; sleep 0.02; done
touch ready.$1
until [ $(ls ready.* | wc -l) = {pods} ]; do sleep 0.02; done
echo {seconds} >&3
exec 3>&-
wait $!
cat out.$1
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


def OwnDescendants():
    """Whatever is started from here on is a descendant of this process, orphans too, and a signal lets it end them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))


def Signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has ended meanwhile


def SignalDescendants(number, program=""):
    """All of them, or those that run `program`."""
    for pid, name in Descendants().items():
        if name.startswith(program[:15]):  # what the kernel keeps
            Signal(pid, number)


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


def WriteScenario(path, pods):
    """`pods`: namespace, name, slots, command."""
    lines = ["pods:"]
    for namespace, pod, slots, words in pods:
        command = ", ".join(json.dumps(str(word)) for word in words)
        lines += [f"  - namespace: {namespace}", f"    name: {pod}", f"    slots: {slots}",
                  f"    command: [{command}]", "    timeoutSeconds: 300"]
    path.write_text("\n".join(lines) + "\n")


class Demo:
    def __init__(self, build, software, policy=POLICY, gpus=SOFTWARE_GPUS):
        """`gpus`: so many software GPUs."""
        self.build = build.resolve()
        self.software = software
        self.policy = policy
        self.gpus = gpus
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuloom-demo-"))
        self.agent = self.kubelet = None

    def Programs(self):
        """As WriteScenario takes them."""
        programs = self.build / "tests" / "programs"
        return [(namespace, pod, slots, [programs / f"{program}_{runtime}", *arguments])
                for namespace, pod, slots, program, runtime, arguments in PODS]

    def Contenders(self):
        script = self.folder / "contend.sh"
        script.write_text(CONTEND.format(folder=self.folder, program=self.build / "tests" / "gpuloom-resting-tenant",
                                         pods=len(CONTENDERS), seconds=CONTEND_SECONDS))
        return [(namespace, pod, 1, ["/bin/sh", script, pod]) for namespace, pod, _ in CONTENDERS]

    def Run(self, pods):
        """The pods' results, as fake-kubelet tells them."""
        binaries = self.build / "bin"
        policy, scenario = self.folder / "policy.yaml", self.folder / "scenario.yaml"
        policy.write_text(self.policy)
        WriteScenario(scenario, pods)
        environment = dict(os.environ, GPULOOM_SOFTGPU_DEVICES=str(self.gpus),
                           GPULOOM_SOFTGPU_MEMORY=SOFTWARE_GPU_MEMORY, GPULOOM_SOFTGPU_QUIET="1")
        slots_per_gpu = SLOTS // self.gpus if self.software else SLOTS
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
        SignalDescendants(signal.SIGTERM, "gpuloom-scheduler")
        left = WaitUntilAlone(60)
        for pid in left:
            Signal(pid, signal.SIGKILL)
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


def PrintShares(results):
    """True when the heavy namespace had its share of what was done, by the number of its kernels."""
    kernels = {}
    for namespace, pod, _ in CONTENDERS:
        result = results.get((namespace, pod), {})
        if result.get("phase") != "Succeeded" or not result.get("kernels"):
            print(f"{namespace}/{pod}: {result.get('phase', 'missing')} {result.get('message', '')} {result.get('stdout', '')}"
                  f"{result.get('stderr', '')}".rstrip())
            return False
        kernels[namespace] = result["kernels"]
    done = sum(kernels.values())
    weights = sum(weight for _, _, weight in CONTENDERS)
    print("\ntwo pods that want all of one GPU's time:")
    for namespace, _, weight in CONTENDERS:
        print(f"  {namespace}, weight {weight}: {100 * kernels[namespace] / done:.0f} % of the kernels "
              f"(by weight {100 * weight / weights:.0f} %)")
    return SHARE_OF_HEAVY[0] < kernels[CONTENDERS[-1][0]] / done < SHARE_OF_HEAVY[1]


def Play(demo, pods):
    """The pods' results, and what was left of their processes."""
    try:
        return demo.Run(pods), demo.Stop()
    except BaseException:
        demo.Stop()
        raise


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--softgpu", action="store_true", help="software GPUs instead of the machine's own")
    arguments = parser.parse_args()
    OwnDescendants()

    demo = Demo(arguments.build, arguments.softgpu)
    contests = []
    where = f"{SOFTWARE_GPUS} software GPUs" if arguments.softgpu else "this machine's GPU"
    print(f"running {len(PODS)} pods of two namespaces on {where} …\n", flush=True)
    begin = time.monotonic()
    results, left = Play(demo, demo.Programs())
    right = PrintTable(results)
    shares_are_right = False
    while not shares_are_right and len(contests) < CONTESTS:
        if contests:
            print("  not by weight: is the machine busy with something else? once more")
        contests.append(Demo(arguments.build, arguments.softgpu, SHARES_POLICY, gpus=1))
        contenders, more_left = Play(contests[-1], contests[-1].Contenders())
        shares_are_right = PrintShares(contenders)
        left.update(more_left)
    took = time.monotonic() - begin
    right = right and shares_are_right
    print(f"\n{len(results) + len(contests) * len(CONTENDERS)} pods in {took:.1f} s; "
          f"{'no process is left' if not left else 'left and killed: ' + ', '.join(sorted(left.values()))}")
    if right and not left:
        for each in (demo, *contests):
            shutil.rmtree(each.folder, ignore_errors=True)
        print(f"next: {arguments.build}/bin/gpuloom run {'--softgpu ' if arguments.softgpu else ''}-- "
              f"{arguments.build}/tests/programs/vadd_static")
        return 0
    for log in sorted(log for each in (demo, *contests) for log in each.folder.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        print(f"-- the end of {log.name}:", *lines[-12:], sep="\n", file=sys.stderr)
    print(f"demo: not everything went right; logs: {' '.join(str(each.folder) for each in (demo, *contests))}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
