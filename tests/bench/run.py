#!/usr/bin/env python3
"""Measures gpuloom beside the driver it stands on, in one run on one machine, and prints one table.

  run.py --bench build/release/tests/bench/gpuloom-bench --gpuloom build/release/bin/gpuloom
  run.py … --softgpu --native build/release/lib/softgpu/libcuda.so.1     every line once, on the software driver

Native and gpuloom rounds alternate, so that a machine that slows down slows down both. docs/benchmarks.md says
what the lines mean. Exit status 1 when a line could not be measured; a goal that is missed is only shown.
"""

import argparse
import contextlib
import pathlib
import sys
import tempfile
import time

import node
import table
from processes import Failed, Holders, Sides

SIDES = ("native", "gpuloom")
# Units of the program's lines as the table shows them: unit → (shown unit, factor).
SHOWN = {"launches/s": ("1000 launches/s", 1e-3)}


class Run:
    def __init__(self, options, sides, state_dir):
        self.options = options
        self.sides = sides
        self.results = table.Results()
        self.full = not options.softgpu
        self.state_dir = state_dir

    def say(self, text):
        print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)

    def in_turn(self, number):
        return SIDES if number % 2 == 0 else SIDES[::-1]

    @contextlib.contextmanager
    def part(self, name, side):
        """One side of one measurement: what fails in it is that line's error, and the run goes on."""
        self.say(f"{name}: {side}")
        try:
            yield
        except (Failed, OSError, ValueError) as error:
            self.say(f"{name}: {side}: {error}")
            self.results.add_error(name, side, str(error))
        if side == "gpuloom":
            self.wait_for_node_to_end()

    def wait_for_node_to_end(self, timeout_s=20):
        """`gpuloom run` ends scheduler and executor with its last tenant; a native round has the GPU to itself."""
        deadline_s = time.monotonic() + timeout_s
        while left := node.node_processes(self.state_dir):
            if time.monotonic() > deadline_s:
                self.results.add_error("left_behind", "gpuloom", f"still running: {sorted(left)}")
                return
            time.sleep(0.05)

    def check(self, side):
        """Right before fast. Leaves no line in the table unless it fails."""
        with self.part("check", side):
            bench = self.sides.start(side, "--check")
            try:
                said = list(bench.lines(timeout_s=60))
                if not said or said[-1] != {"name": "check", "ok": True}:
                    raise Failed(f"{bench.what}: {said[-1] if said else 'said nothing'}")
            finally:
                bench.end(timeout_s=5)

    def measure_round(self, side):
        """All lines of one process."""
        with self.part("lines", side):
            bench = self.sides.start(side, *([] if self.full else ["--tiny"]))
            try:
                seen = 0
                for line in bench.lines(timeout_s=240):
                    seen += 1
                    if "error" in line:
                        self.results.add_error(line["name"], side, line["error"])
                    elif "median" in line:
                        unit, factor = SHOWN.get(line["unit"], (line["unit"], 1))
                        self.results.add(line["name"], side, unit, line["median"] * factor)
                if not seen or bench.process.returncode < 0 or bench.process.returncode > 1:
                    raise Failed(f"{bench.what}: ended with status {bench.process.returncode}")
            finally:
                bench.end(timeout_s=5)

    def measure_first_start(self, side):
        """From nothing: for gpuloom, scheduler and executor start too."""
        with self.part("start_up_first", side):
            bench = self.sides.start(side, "--first-kernel")
            try:
                line = bench.line(time.monotonic() + 60)
                if line is None or not line.isdigit():
                    raise Failed(f"{bench.what}: {line or 'said nothing'}")
                self.results.add("start_up_first", side, "ms", (int(line) / 1e9 - bench.started_s) * 1e3)
            finally:
                bench.end()

    def measure_rate(self, side, count, seconds):
        """Launches by several processes at the same time, all together."""
        name = f"launch_rate_{count}"
        with self.part(name, side):
            group = []
            try:
                for _ in range(count):
                    group.append(self.sides.start(side, "--rate", str(seconds), *([] if self.full else ["--tiny"])))
                for bench in group:
                    bench.wait_ready()
                for bench in group:
                    bench.go()
                total = 0
                for bench in group:
                    for line in bench.lines(timeout_s=seconds + 60):
                        if "error" in line:
                            raise Failed(line["error"])
                        total += line["median"]
                self.results.add(name, side, "1000 launches/s", total / 1e3)
            finally:
                for bench in group:
                    bench.end(timeout_s=5)

    def measure_memory(self, side):
        """GPU memory of idle processes that have a context, a stream, a module and one launch behind them."""
        with self.part("memory_next_tenant", side):
            used_mib = {0: node.memory_used_mib(self.options.gpu)}
            for count in (1, 2, 5):
                with Holders(self.sides, side, count, 120):
                    time.sleep(0.5)
                    used_mib[count] = node.memory_used_mib(self.options.gpu)
                if side == "gpuloom":
                    self.wait_for_node_to_end()
            self.results.add("memory_first_tenant", side, "MiB", used_mib[1] - used_mib[0])
            self.results.add("memory_next_tenant", side, "MiB", used_mib[2] - used_mib[1])
            self.results.add("memory_next_tenant", side, "MiB", (used_mib[5] - used_mib[1]) / 4)

    def measure_idle(self, side, count, seconds):
        """Processor time of everything while `count` connected tenants do nothing."""
        with self.part("idle_cpu_node", side):
            with Holders(self.sides, side, count, seconds + 60) as pids:
                time.sleep(2 if self.full else 0.2)
                tenants = set().union(*(node.descendants(pid) for pid in pids))
                ours = node.node_processes(self.state_dir)
                tenants -= ours
                if side == "gpuloom" and not ours:
                    raise Failed("no scheduler and no executor is running beside connected tenants")
                before = node.processor_seconds(ours), node.processor_seconds(tenants)
                start_s = time.monotonic()
                time.sleep(seconds)
                passed_s = time.monotonic() - start_s
                node_share = (node.processor_seconds(ours) - before[0]) / passed_s
                tenant_share = (node.processor_seconds(tenants) - before[1]) / passed_s
                if side == "gpuloom":
                    self.results.add("idle_cpu_node", side, "% of a core", 100 * node_share)
                self.results.add("idle_cpu_tenants", side, "% of a core", 100 * tenant_share)

    def run(self):
        options = self.options
        for side in SIDES:
            self.check(side)
        for number in range(options.rounds):
            for side in self.in_turn(number):
                self.say(f"round {number + 1} of {options.rounds}")
                self.measure_first_start(side)
                self.measure_round(side)
        for number in range(min(options.rounds, 3)):
            for count in (1, 2, 4) if self.full else (1, 2):
                for side in self.in_turn(number):
                    self.measure_rate(side, count, 3 if self.full else 0.2)
        if self.full:
            for side in SIDES:
                self.measure_memory(side)
        for side in SIDES:
            self.measure_idle(side, 4 if self.full else 2, 20 if self.full else 0.5)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="gpuloom-bench")
    parser.add_argument("--gpuloom", required=True, help="gpuloom; scheduler, executor and shim are found from it")
    parser.add_argument("--native", default="libcuda.so.1", help="the driver to compare with (default: %(default)s)")
    parser.add_argument("--softgpu", action="store_true", help="no GPU: every line once, goals not judged")
    parser.add_argument("--gpu", type=int, default=0, help="index of the GPU (default: 0)")
    parser.add_argument("--rounds", type=int, help="rounds of each side (default: 5; 1 with --softgpu)")
    parser.add_argument("--run-argument", action="append", default=[], metavar="WORD", help="passed to gpuloom run")
    parser.add_argument("--out", help="also write the table to this file")
    options = parser.parse_args(arguments)
    if options.rounds is None:
        options.rounds = 1 if options.softgpu else 5
    if options.softgpu and options.native == "libcuda.so.1":
        parser.error("--softgpu needs --native PATH of the software driver")
    return options


def main(arguments):
    options = parse(arguments)
    bench = str(pathlib.Path(options.bench).resolve())
    gpuloom = str(pathlib.Path(options.gpuloom).resolve())
    with tempfile.TemporaryDirectory(prefix="gpuloom-bench-") as state:
        where = ["--softgpu"] if options.softgpu else ["--gpu", str(options.gpu)]
        run_arguments = [*where, "--state-dir", state, *options.run_argument]
        sides = Sides(bench, options.native, gpuloom, run_arguments, None if options.softgpu else options.gpu)
        run = Run(options, sides, state)
        run.run()
    facts = node.describe(options.gpu, options.softgpu) + [("Rounds", f"{options.rounds} of each side, alternating")]
    text = table.markdown(facts, run.results, judged=not options.softgpu)
    print(text, end="")
    if options.out:
        pathlib.Path(options.out).write_text(text)
    return 1 if run.results.failed() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
