#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long after the policy file's change running pods have the GPU's time that the new policy gives them: a kubelet
stand-in, the agent, and a pod in each of two namespaces that always wants one GPU. Their weights, 100 and 300, are exchanged
in the file again and again.

  policy_change.py --build DIR [--softgpu] [--changes 5]      DIR: a build folder, or what pack.sh --demo has made

A figure counts from the moment at which the new file has replaced the old one to the end of the first window of 100 ms with
the new shares, within 5 % of the device; so the least that can be seen is 100 ms. Exit status 1 when one is more than a second,
which on a software GPU is not judged: its kernels need the processors that agent and scheduler need.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import sys
import threading
import time

import sharing
from processes import Bench, Failed
from sharing_lines import WARM_S

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "deploy"), str(HERE)]
import demo  # noqa: E402  beside this file in a pack

GOAL_S = 1.0
BETWEEN_S = 2.0  # two changes
NAMESPACES = ("team-a", "team-b")
WEIGHTS = (100, 300)


def policy(weights):
    return "namespaces:\n" + "".join(f"  {name}: {{weight: {weight}}}\n" for name, weight in zip(NAMESPACES, weights))


def weights_after(changes):
    return WEIGHTS[::-1] if changes % 2 else WEIGHTS


def settled(work, changed_s):
    """For each change, made at these seconds from the first window's begin, how long until the shares were the new ones; None:
    not until the next change."""
    ends_s = [*changed_s[1:], len(work[0]) * sharing.WINDOW_S]
    return [sharing.settled_s([one[:int(end_s / sharing.WINDOW_S)] for one in work], weights_after(number), at_s)
            for number, (at_s, end_s) in enumerate(zip(changed_s, ends_s), 1)]


class Pod:
    """A benchmark process inside a pod of the demo's kubelet: what it reads and says passes through the demo's folder."""

    def __init__(self, folder, name, words):
        self.name = name
        self.said = folder / f"said.{name}"
        commands = folder / f"commands.{name}"
        os.mkfifo(commands)
        self.commands = os.open(commands, os.O_RDWR)  # open for reading, too, so that the pod need not be there yet
        line = " ".join([*map(str, words), "<", str(commands), ">", str(self.said)])
        self.command = ["/bin/sh", "-c", f"exec {line}"]

    def answer(self, key, timeout_s, alive):
        """The first thing it says that has `key`."""
        deadline_s = time.monotonic() + timeout_s
        while alive() and time.monotonic() < deadline_s:
            with contextlib.suppress(FileNotFoundError, ValueError):
                for line in self.said.read_text(encoding="utf-8").splitlines():
                    said = json.loads(line)
                    if "error" in said:
                        raise Failed(f"{self.name}: {said['error']}")
                    if said.get("name") == key or key in said:
                        return said
            time.sleep(0.02)
        raise Failed(f"{self.name}: said nothing of {key}")


def bench_of(build):
    """gpuloom-bench in a build folder, or in a pack."""
    for path in (build / "tests" / "bench" / "gpuloom-bench", build / "tests" / "gpuloom-bench"):
        if path.exists():
            return path
    raise Failed(f"{build}: no tests/bench/gpuloom-bench there, nor tests/gpuloom-bench: build it first")


def calibrated(bench, library, kernel_us, tiny):
    """How many iterations a kernel of this length needs, by a native process that has the GPU to itself."""
    native = Bench("native", [str(word) for word in (bench, "--library", library, "--work", kernel_us, *tiny)], None)
    try:
        return native.wait_ready()["iterations"]
    finally:
        native.end(timeout_s=5)


def replace(path, text):
    """As a ConfigMap's file is: the old one or the new one, whole. Returns when."""
    new = path.with_name("new.yaml")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)
    return time.monotonic()


def measure(options):
    """The seconds of each change."""
    bench = bench_of(options.build)
    library = str(options.build / "lib" / "softgpu" / "libcuda.so.1") if options.softgpu else "libcuda.so.1"
    tiny = ["--tiny"] if options.softgpu else []
    iterations = calibrated(bench, library, options.kernel_us, tiny)
    node = demo.Demo(options.build, options.softgpu, policy(WEIGHTS), gpus=1)
    words = [bench, "--work", options.kernel_us, "--iterations", iterations, "--queued", 16, *tiny]
    pods = [Pod(node.folder, f"pod-{name}", words) for name in NAMESPACES]
    scenario = [(name, pod.name, 1, pod.command) for name, pod in zip(NAMESPACES, pods)]
    results = {}
    thread = threading.Thread(target=lambda: results.update(node.Run(scenario)))
    thread.start()
    try:
        for pod in pods:
            pod.answer("ready", 120, thread.is_alive)
        start_s = time.monotonic() + WARM_S + 0.05
        windows = round((options.changes + 1) * BETWEEN_S / sharing.WINDOW_S)
        for pod in pods:
            os.write(pod.commands, f"run {round(start_s * 1e9)} {windows}\n".encode())
        changed_s = []
        for number in range(1, options.changes + 1):
            # Not always at the same moment of the agent's looks.
            time.sleep(max(0.0, start_s + BETWEEN_S * number + 0.037 * number - time.monotonic()))
            changed_s.append(replace(node.folder / "policy.yaml", policy(weights_after(number))) - start_s)
        work = [pod.answer("windows", BETWEEN_S + 60, lambda: True)["windows"] for pod in pods]
        thread.join(60)
        return settled(work, changed_s)
    except Failed as error:
        said = [f"{result['phase']}: {result.get('message', '')} {result.get('stderr', '')}".strip() for result in results.values()]
        raise Failed("; ".join([str(error), *said])) from error
    finally:
        for pod in pods:
            os.close(pod.commands)
        left = node.Stop()
        thread.join(60)
        if left:
            print(f"left and killed: {', '.join(sorted(left.values()))}", file=sys.stderr)
        shutil.rmtree(node.folder, ignore_errors=True)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--softgpu", action="store_true", help="a software GPU instead of the machine's own")
    parser.add_argument("--changes", type=int, default=5)
    parser.add_argument("--kernel-us", type=int, default=200, help="how long the pods' kernels are (default: %(default)s)")
    options = parser.parse_args(arguments)
    demo.OwnDescendants()
    try:
        seconds = measure(options)
    except Failed as error:
        print(f"policy_change: {error}", file=sys.stderr)
        return 1
    known = [one for one in seconds if one is not None]
    print("from the file's change to the shares, s: " + ", ".join("never" if one is None else f"{one:.2f}" for one in seconds)
          + (f"; median {statistics.median(known):.2f}" if known else ""))
    return 0 if options.softgpu or (len(known) == len(seconds) and max(known) <= GOAL_S) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
