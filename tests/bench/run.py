#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures gpuloom beside the driver it stands on, in one run on one machine, and prints its tables.

  run.py --bench build/release/tests/bench/gpuloom-bench --gpuloom build/release/bin/gpuloom
  run.py … --quick                  four minutes: fewer rounds, shorter
  run.py … --only programs          groups: programs mixes micro rates driver memory idle starts sharing; or how lines begin
  run.py … --budget 540             leaves out, and says so, what does not fit into so many seconds
  run.py … --softgpu --native build/release/lib/softgpu/libcuda.so.1     every call's line once, on the software driver

Sides take turns, so that a machine that slows down slows down all. docs/benchmarks.md says what the lines mean. Exit
status 1 when a line could not be measured or a program's results differ; a goal that is missed is only shown.
"""

import argparse
import contextlib
import pathlib
import sys
import tempfile
import time

import alone_lines
import copy_lines
import inference_lines
import language_lines
import library_lines
import micro_lines
import node
import program_lines
import sharing_lines
import start_lines
import table
import tenant_lines
from mps import Mps
from processes import Failed, Sides

# Groups of lines, and how the names of their lines begin.
GROUPS = {
    "programs": program_lines.ALONE,
    "mixes": ("resnet50_b1_x", "mixed_x"),
    "micro": ("copy_", "event_", "graph_", "launch_", "library_load", "managed_", "mem_alloc",
              "register_", "start_up", "unregister_", "wait_"),
    "rates": ("launch_rate",),
    "driver": ("driver_",),
    "memory": ("memory_",),
    "idle": ("idle_cpu", "waiting_cpu"),
    "starts": ("domain_start",),
    "sharing": ("sharing_",),
}


class Selection:
    """Which lines are wanted: by group, or by how the name begins."""

    def __init__(self, only, skip):
        self.only, self.skip = only, skip

    def wants(self, group, name):
        def among(words):
            return any(word == group or (word not in GROUPS and name.startswith(word)) for word in words)
        return (not self.only or among(self.only)) and not among(self.skip)

    def may_want(self, group):
        """Whether anything of the group can be wanted."""
        def meet(word):
            return any(word.startswith(beginning) or beginning.startswith(word) for beginning in GROUPS[group])
        return group not in self.skip and (not self.only or any(
            word == group or (word not in GROUPS and meet(word)) for word in self.only))

    def bench_arguments(self, group):
        """The same choice for gpuloom-bench."""
        only = [] if group in self.only else [word for word in self.only if word not in GROUPS]
        skip = [word for word in self.skip if word not in GROUPS]
        return [word for name, words in (("--only", only), ("--skip", skip)) if words
                for word in (name, ",".join(words))]


class Run:
    def __init__(self, options, sides):
        self.options = options
        self.sides = sides
        self.results = table.Results()
        self.full = not options.softgpu
        self.state_dir = sides.state_dirs["gpuloom"]
        self.selection = Selection(options.only, options.skip)
        self.wants = self.selection.wants
        self.mps_environment = None
        self.started_s = time.monotonic()

    def say(self, text):
        print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)

    def tiny(self):
        return [] if self.full else ["--tiny"]

    def in_turn(self, number, sides=("native", "gpuloom")):
        """The order of a round: forth and back."""
        return sides if number % 2 == 0 else sides[::-1]

    def memory_used_mib(self):
        return node.memory_used_mib(self.options.gpu)

    def no_time_for(self, name, seconds):
        """True, and noted, when so many seconds more are beyond the budget."""
        if not self.options.budget or time.monotonic() - self.started_s + seconds <= self.options.budget:
            return False
        self.results.add_note(f"Left out, no time in {self.options.budget:g} s: {name}")
        return True

    @contextlib.contextmanager
    def part(self, name, side):
        """One side of one measurement: what fails in it is that line's error, and the run goes on."""
        self.say(f"{name}: {side}")
        try:
            yield
        except (Failed, OSError, ValueError) as error:
            self.say(f"{name}: {side}: {error}")
            self.results.add_error(name, side, str(error))
        if side in self.sides.state_dirs:
            self.wait_for_node_to_end(side)

    def wait_for_node_to_end(self, side="gpuloom", timeout_s=20):
        """`gpuloom run` ends scheduler and executor with its last tenant; a native round has the GPU to itself."""
        deadline_s = time.monotonic() + timeout_s
        while left := node.node_processes(self.sides.state_dirs[side]):
            if time.monotonic() > deadline_s:
                self.results.add_error("left_behind", side, f"still running: {sorted(left)}")
                return
            time.sleep(0.05)

    def measure_programs(self):
        """Each alone."""
        if self.selection.may_want("programs"):
            names = program_lines.ALONE[:5] if self.options.quick else program_lines.ALONE
            program_lines.measure(self, program_lines.alone(names))
            self.wait_for_node_to_end()

    def measure_mixes(self):
        """Several at once."""
        if not self.selection.may_want("mixes"):
            return
        counts = (4,) if self.options.quick else (2, 4, 8)
        for cast in (program_lines.together("resnet50_b1", ["resnet50_b1"] * 8, counts),
                     program_lines.together("mixed", program_lines.MIXED * 2, counts)):
            program_lines.measure(self, cast)
            self.wait_for_node_to_end()

    @contextlib.contextmanager
    def under_mps(self):
        """MPS runs for the lines of several processes only."""
        with Mps(self.options.gpu) as mps:
            self.mps_environment = mps.environment
            if mps.environment:
                self.sides.use_mps(mps.environment)
            else:
                self.results.add_note(f"MPS: not available: {mps.missing}")
            try:
                yield
            finally:
                self.mps_environment = None

    def run(self):
        if self.full:
            self.measure_programs()
            with self.under_mps():
                self.measure_mixes()
        if self.selection.may_want("micro"):
            micro_lines.measure(self)
            library_lines.measure(self)
        if self.selection.may_want("starts"):
            start_lines.measure(self)
        if self.selection.may_want("sharing"):
            alone_lines.measure(self)
        with self.under_mps() if self.full else contextlib.nullcontext():
            tenant_lines.measure(self)
            if self.selection.may_want("sharing"):
                sharing_lines.measure(self)
                if self.full:
                    inference_lines.measure(self)
                    language_lines.measure(self)
                    copy_lines.measure(self)


def words(text):
    return [word for word in text.split(",") if word]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="gpuloom-bench")
    parser.add_argument("--gpuloom", required=True, help="gpuloom; scheduler, executor and shim are found from it")
    parser.add_argument("--native", default="libcuda.so.1", help="the driver to compare with (default: %(default)s)")
    parser.add_argument("--softgpu", action="store_true", help="no GPU: every line once, goals not judged")
    parser.add_argument("--gpu", type=int, default=0, help="index of the GPU (default: 0)")
    parser.add_argument("--quick", action="store_true", help="two rounds, short ones")
    parser.add_argument("--rounds", type=int, help="rounds of each side (default: 3; 2 quick; 1 with --softgpu)")
    parser.add_argument("--seconds", type=float, help="a program's round (default: 2; 1 quick)")
    parser.add_argument("--only", type=words, default=[], metavar="A,B", help="these groups or beginnings of lines")
    parser.add_argument("--skip", type=words, default=[], metavar="A,B", help="not these")
    parser.add_argument("--budget", type=float, help="seconds for the whole run")
    parser.add_argument("--run-argument", action="append", default=[], metavar="WORD", help="passed to gpuloom run")
    parser.add_argument("--out", help="also write the table to this file")
    options = parser.parse_args(arguments)
    if options.rounds is None:
        options.rounds = 1 if options.softgpu else 2 if options.quick else 3
    options.program_rounds = options.rounds
    if options.seconds is None:
        options.seconds = 1.0 if options.quick else 2.0
    options.prepare_s, options.warm_s = 0.5, 0.2
    options.rate_s = 0.2 if options.softgpu else 1 if options.quick else 2
    options.sharing_s = 0.5 if options.softgpu else 3 if options.quick else 6
    options.inference_s = 4 if options.quick else 8
    options.language_s = 2 if options.quick else 6
    options.idle_s = 0.5 if options.softgpu else 5 if options.quick else 20
    if options.quick:
        options.budget = options.budget or 240
        if not any(word.startswith("sharing") for word in options.only):
            options.skip += ["sharing"]
        if not any(word.startswith("driver") for word in options.only):
            options.skip += ["driver"]
        options.skip += [f"copy_{way}_{kind}_1GiB" for way in ("h2d", "d2h") for kind in ("pinned", "pageable")]
    if options.softgpu and options.native == "libcuda.so.1":
        parser.error("--softgpu needs --native PATH of the software driver")
    return options


def main(arguments):
    options = parse(arguments)
    bench = str(pathlib.Path(options.bench).resolve())
    gpuloom = str(pathlib.Path(options.gpuloom).resolve())
    with tempfile.TemporaryDirectory(prefix="gpuloom-bench-") as folder:
        where = ["--softgpu"] if options.softgpu else ["--gpu", str(options.gpu)]
        state = pathlib.Path(folder, "state")
        state.mkdir()
        sides = Sides(bench, options.native, gpuloom, [*where, *options.run_argument], state,
                      None if options.softgpu else options.gpu)
        run = Run(options, sides)
        run.run()
    facts = node.describe(options.gpu, options.softgpu) + [("Rounds", f"{options.rounds} of each side, alternating")]
    text = table.markdown(facts, run.results, judged=not options.softgpu)
    print(text, end="")
    if options.out:
        pathlib.Path(options.out).write_text(text)
    return 1 if run.results.failed() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
