#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast the software GPU executes kernels, program by program, and how much faster than another build of it.

  softgpu_speed.py --kernels build/dev/tests/bench/softgpu-kernels build/dev/lib/softgpu/libcuda.so.1
  softgpu_speed.py --kernels … AFTER/libcuda.so.1 --before BEFORE/libcuda.so.1     in turn, and the gain
  softgpu_speed.py … --only matmul,sort --rounds 7

Prints a table in Markdown: processor time (all threads) and time on the clock of a program's launches, the least of all
rounds, and how many million PTX instructions a warp executes in a second of processor time. Exit status 1 when a
program fails, or when its result is not the same to the bit in every round of both.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import node
import table


class Failed(Exception):
    """A sentence for people."""


def run_kernel(kernels, folder, name, repeat, **environment):
    """(what the program said, what the driver said)."""
    settings = {"GPULOOM_SOFTGPU_MEMORY": "1GiB", "LD_LIBRARY_PATH": str(folder), **environment}
    done = subprocess.run([kernels, name, str(repeat)], env={**os.environ, **settings}, capture_output=True, text=True,
                          timeout=600)
    if done.returncode != 0:
        raise Failed(f"{name}: exit status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout), done.stderr


def instructions(kernels, folder, name):
    """Of one launch of each of its kernels."""
    _, said = run_kernel(kernels, folder, name, 1, GPULOOM_SOFTGPU_COUNT="1")
    return sum(int(line.split()[-2]) for line in said.splitlines() if line.endswith(" instructions"))


def measure(kernels, folders, name, rounds, repeat):
    """For each side the least processor and clock seconds; the sides take turns."""
    least, checks = {}, set()
    for _ in range(rounds):
        for side, folder in folders.items():
            said, _ = run_kernel(kernels, folder, name, repeat)
            checks.add(said["check"])
            cpu_s, wall_s = least.get(side, (float("inf"),) * 2)
            least[side] = min(cpu_s, said["cpu_s"]), min(wall_s, said["wall_s"])
    if len(checks) != 1:
        raise Failed(f"{name}: results differ: {', '.join(sorted(checks))}")
    return least


def row(name, least, executed):
    cpu_s, wall_s = least["after"]
    cells = [name]
    if "before" in least:
        cells += [table.number(least["before"][0] * 1e3), table.number(least["before"][1] * 1e3)]
    cells += [table.number(cpu_s * 1e3), table.number(wall_s * 1e3), table.number(executed / cpu_s / 1e6)]
    if "before" in least:
        cells += [table.ratio(least["before"][0], cpu_s), table.ratio(least["before"][1], wall_s)]
    return "| " + " | ".join(cells) + " |"


def head(compares):
    before = ["before, processor ms", "before, clock ms"] if compares else []
    gain = ["gain, processor", "gain, clock"] if compares else []
    cells = ["program", *before, "processor ms", "clock ms", "million instructions/s", *gain]
    return ["| " + " | ".join(cells) + " |", "| --- |" + " ---: |" * (len(cells) - 1)]


def folder_of(library, parent, side):
    """A folder in which programs find this library under its usual name."""
    folder = pathlib.Path(parent) / side
    folder.mkdir()
    (folder / "libcuda.so.1").symlink_to(pathlib.Path(library).resolve(strict=True))
    return folder


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="the software driver's libcuda.so.1")
    parser.add_argument("--before", help="another build of it")
    parser.add_argument("--kernels", required=True, help="softgpu-kernels")
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="A,B", help="these programs")
    parser.add_argument("--rounds", type=int, default=5, help="of each side (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=1, help="launches in each (default: %(default)s)")
    options = parser.parse_args(arguments)
    kernels = str(pathlib.Path(options.kernels).resolve())
    failed = False
    with tempfile.TemporaryDirectory(prefix="softgpu-speed-") as parent:
        folders = {"after": folder_of(options.library, parent, "after")}
        if options.before:
            folders = {"before": folder_of(options.before, parent, "before"), **folders}
        names = subprocess.run([kernels], env={**os.environ, "LD_LIBRARY_PATH": str(folders["after"])},
                               capture_output=True, text=True, check=True).stdout.split()
        print(f"{node.processor()}; {options.rounds} rounds\n")
        print("\n".join(head("before" in folders)), flush=True)
        for name in options.only or names:
            try:
                executed = instructions(kernels, folders["after"], name) * options.repeat
                print(row(name, measure(kernels, folders, name, options.rounds, options.repeat), executed), flush=True)
            except (Failed, OSError, ValueError, subprocess.SubprocessError) as error:
                failed = True
                print(f"softgpu_speed: {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
