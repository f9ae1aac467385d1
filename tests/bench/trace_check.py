#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes traces (gpuloom trace) of two tenants that share a trust domain, and compares them with what the tenants were charged.

usage: trace_check.py --gpuloom FILE --bench FILE --out FOLDER [--state-dir FOLDER] [--seconds S] [--loads A,B] [--softgpu]

  saturated    a tenant of long kernels beside one of graphs of short ones, always busy: the union of the kernels' intervals is
               what both are charged, within 1 %
  half         two tenants that want a quarter of the device each: within 5 %
  cooperative  cooperative kernels beside graphs, always busy: within 1 %
  libraries    products of PyTorch, which are kernels of cuBLAS, beside graphs, within 1 %; where there is PyTorch
  launches     how many a second one tenant makes before the executor's first trace, during one, and after it

Each kernel must be its own tenant's, and the file must load. On the software GPU, which has no CUPTI, intervals are the
executor's own and nothing is compared. The table goes to FOLDER/report.md and to the standard output.
"""

import argparse
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
import time

import processes
from program_lines import Player

DOMAIN = "trace"
TORCH_LOOPS = pathlib.Path(__file__).resolve().parent / "torch_loops.py"
# By name of the load: {tenant: (length of a kernel in µs, its words)}; None: kernels of no known length, of the program `words`.
LOADS = {
    "saturated": {"long": (100, ["--queued", "16"]), "short": (20, ["--graph", "20", "--queued", "4"])},
    "half": {"long": (100, ["--busy", "25", "--seed", "1"]), "short": (20, ["--busy", "25", "--seed", "2"])},
    "cooperative": {"cooperative": (200, ["--cooperative", "--queued", "8"]), "short": (20, ["--graph", "20", "--queued", "4"])},
    "libraries": {pathlib.Path(sys.executable).name: (None, [TORCH_LOOPS, "gemm_4096"]),
                  "short": (20, ["--graph", "20", "--queued", "4"])},
}
GOALS = {"saturated": 1.0, "half": 5.0, "cooperative": 1.0, "libraries": 1.0}  # per cent
WINDOW_S = 0.1
# From one kernel to the next that was ready when it ended: the device is not idle, and CUPTI counts neither.
GAP_US = 3.0
# Kernels that the file may have beyond a tenant's own: what CUDA runs in streams of its own.
MOST_UNKNOWN = 0.01


def union_s(intervals, gap_us=0.0):
    """Seconds in which at least one is, of (begin, end) in microseconds, and what is between two of them if that is shorter than
    the gap."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - (until if begin - until < gap_us else max(begin, until)))
        until = max(until, end)
    return total / 1e6


class Trace:
    """One file, whose only GPU has one part: the domain's."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            trace = json.load(file)
        parts = [part for gpu in trace["otherData"]["gpus"] for part in gpu["parts"] if part["trust_domain"] == DOMAIN]
        if len(parts) != 1:
            raise processes.Failed(f"{path}: {len(parts)} parts of the domain {DOMAIN}, not one")
        self.part = parts[0]
        names, self.kernels = {}, {}
        for event in trace["traceEvents"]:
            if event["ph"] == "M" and event["name"] == "process_name":
                names[event["pid"]] = event["args"]["name"].rsplit("/", 1)[-1]
            elif event["ph"] == "X" and event["cat"] in ("kernel", "graph"):
                self.kernels.setdefault(names[event["pid"]], []).append((event["ts"], event["ts"] + event["dur"]))

    def count(self):
        return sum(map(len, self.kernels.values()))

    def busy_s(self, gap_us=0.0):
        return union_s([interval for kernels in self.kernels.values() for interval in kernels], gap_us)

    def length_us(self, tenant):
        return statistics.median(end - begin for begin, end in self.kernels[tenant])

    def unknown(self, tenants):
        """Which part of the kernels is none of the tenants'."""
        known = sum(len(self.kernels.get(tenant, ())) for tenant in tenants)
        return 1 - known / max(1, self.count())


class Work:
    """A tenant with kernels of a known length."""

    def __init__(self, check, tenant, kernel_us, words):
        self.bench = check.start(tenant, "--work", str(kernel_us), *words)
        self.close_input, self.end = self.bench.close_input, self.bench.end

    def prepare(self):
        self.bench.wait_ready()

    def begin(self, start_ns, seconds):
        self.bench.go(f"run {start_ns} {round(seconds / WINDOW_S)}")

    def finish(self, timeout_s):
        said = list(self.bench.lines(timeout_s))
        if not said or "windows" not in said[-1]:
            raise processes.Failed(f"{self.bench.what}: {said[-1].get('error') if said else 'ended without an answer'}")


class Program(Player):
    """A tenant with kernels of a library, of no known length."""

    def __init__(self, check, tenant, words):
        super().__init__(check, "gpuloom", tenant, [sys.executable, *words])

    def prepare(self):
        self.answer("imported", 120)
        self.ask("prepare 0.5")
        self.answer("ready", 120)

    def begin(self, start_ns, seconds):
        self.ask(f"run {start_ns / 1e9} 0 {seconds}")

    def finish(self, timeout_s):
        self.answer("ran", timeout_s)


class Check:
    def __init__(self, options):
        self.options = options
        self.out = options.out.resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.state = options.state_dir or self.out / "state"
        self.tiny = ["--tiny"] if options.softgpu else []
        self.rows, self.wrong, self.said = [], [], []

    def start_program(self, side, command, errors=None, terms=()):
        """As processes.Sides: gpuloom is the only side here."""
        command = [self.options.gpuloom, "run", "--slots", "2", "--domain", DOMAIN, "--state-dir", self.state, *terms,
                   *(["--softgpu"] if self.options.softgpu else []), "--", *command]
        return processes.Bench(side, [str(word) for word in command], None, errors)

    def start(self, name, *arguments):
        """A tenant whose container has this name, which is its program's."""
        program = self.out / name
        if not program.exists():
            program.symlink_to(self.options.bench.resolve())
        return self.start_program("gpuloom", [program, *arguments, *self.tiny])

    def trace(self, name, seconds):
        path = self.out / f"{name}.json"
        done = subprocess.run([self.options.gpuloom, "trace", "--seconds", str(seconds), "-o", path, "--state-dir", self.state],
                              capture_output=True, text=True, timeout=seconds + 60)
        print(done.stdout + done.stderr, flush=True)
        if done.returncode not in (0, 3):
            raise processes.Failed(f"gpuloom trace: {done.stderr.strip()}")
        if done.returncode:
            self.wrong.append(f"{name}: {done.stderr.strip()}")
        return Trace(path)

    def load(self, name):
        tenants = LOADS[name]
        seconds = self.options.seconds
        group = []
        try:
            for tenant, (kernel_us, words) in tenants.items():
                group.append(Work(self, tenant, kernel_us, words) if kernel_us else Program(self, tenant, words))
                # One after the other: each finds out how long its kernels take.
                group[-1].prepare()
            start_ns = time.monotonic_ns() + 300_000_000
            for tenant in group:
                tenant.begin(start_ns, seconds + 3)
            time.sleep(1.3)
            trace = self.trace(name, seconds)
            for tenant in group:
                tenant.finish(seconds + 60)
        finally:
            processes.end_all(group)
        self.judge(name, trace, tenants)

    def judge(self, name, trace, tenants):
        part = trace.part
        for tenant in tenants:
            if not trace.kernels.get(tenant):
                self.wrong.append(f"{name}: no kernel of {tenant}")
                return
        lengths = {tenant: trace.length_us(tenant) for tenant in tenants}
        charged_s, busy_s = part["charged_seconds"], trace.busy_s()
        off = 100 * (charged_s - busy_s) / busy_s
        unknown = trace.unknown(tenants)
        self.rows.append(f"| {name} | {part['source']} | {part['seconds']:.2f} s | {busy_s:.4f} s | {trace.busy_s(GAP_US):.4f} s | "
                         f"{charged_s:.4f} s | {off:+.2f} % | "
                         f"{GOALS[name]:.0f} % | {trace.count()} | {100 * unknown:.2f} % | "
                         + ", ".join(f"{tenant} {us:.1f} µs" for tenant, us in lengths.items()) + " |")
        self.said.append(f"{name} {off:+.2f} %")
        if self.options.softgpu:
            return
        if part["source"] != "cupti":
            self.wrong.append(f"{name}: not recorded by CUPTI: {part['source_reason']}")
        if abs(off) > GOALS[name]:
            self.wrong.append(f"{name}: charged {off:+.2f} % of what CUPTI saw, more than {GOALS[name]:.0f} %")
        if unknown > MOST_UNKNOWN:
            self.wrong.append(f"{name}: {100 * unknown:.2f} % of the kernels are nobody's")
        # Whose kernel one is shows in its length.
        wanted = {tenant: kernel_us for tenant, (kernel_us, _) in tenants.items() if kernel_us is not None}
        if max(wanted.values()) > 2 * min(wanted.values()):
            short, long = min(wanted, key=wanted.get), max(wanted, key=wanted.get)
            if lengths[short] * 2 > lengths[long]:
                self.wrong.append(f"{name}: kernels of {short} last {lengths[short]:.1f} µs, of {long} {lengths[long]:.1f} µs")

    def rate(self, seconds):
        """Launches a second of one tenant, and the trace of it if there is one."""
        bench = self.start("launches", "--rate", str(seconds))
        try:
            bench.wait_ready()
            bench.go()
            said = list(bench.lines(timeout_s=seconds + 60))
        finally:
            bench.end(timeout_s=5)
        rates = [line["median"] for line in said if line.get("name") == "launch_rate"]
        if not rates:
            raise processes.Failed(f"{bench.what}: {said[-1] if said else 'no rate'}")
        return rates[-1]

    def rate_during_trace(self, seconds):
        bench = self.start("launches", "--rate", str(seconds))
        try:
            bench.wait_ready()
            tracing = subprocess.Popen([self.options.gpuloom, "trace", "--seconds", str(seconds + 2), "-o",
                                        self.out / "launches.json", "--state-dir", self.state],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(1)  # recording has begun, or the rate says nothing
            bench.go()
            said = list(bench.lines(timeout_s=seconds + 60))
            _, trouble = tracing.communicate(timeout=seconds + 60)
        finally:
            bench.end(timeout_s=5)
        if trouble.strip():
            print(trouble.strip(), flush=True)  # records that had no room are expected
        rates = [line["median"] for line in said if line.get("name") == "launch_rate"]
        trace = Trace(self.out / "launches.json")
        self.said.append(f"unknown launches {100 * trace.unknown(['launches']):.2f} %")
        return rates[-1] if rates else 0.0, trace

    def run(self):
        seconds = self.options.seconds
        # Somebody holds the executor, so that all see the same one.
        holder = self.start("holder", "--hold", "600")
        try:
            holder.wait_ready()
            before = self.rate(1.5)
            for name in LOADS:
                if name == "libraries" and (self.options.softgpu or not importlib.util.find_spec("torch")):
                    continue
                if name in (self.options.loads or LOADS):
                    self.load(name)
            during, trace = self.rate_during_trace(1.5)
            after = self.rate(1.5)
        finally:
            holder.close_input()
            holder.end(timeout_s=10)
        text = "\n".join([
            f"Traces of {seconds} s of two tenants in one trust domain: the union of the kernels' intervals, and the charge.", "",
            f"| load | recorded by | window | kernels ran | with gaps below {GAP_US:g} µs | charged | difference | goal | kernels | "
            "nobody's | median length |",
            "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |", *self.rows, "",
            "| launches a second of one tenant, before the executor's first trace | during one | after it |",
            "| ---: | ---: | ---: |", f"| {before:,.0f} | {during:,.0f} | {after:,.0f} |", "",
            f"While it was traced: {trace.part['records']} records, {trace.part['dropped']} without room, {trace.part['lost']} lost "
            f"by CUPTI, {trace.part['incomplete']} without times.", ""])
        (self.out / "report.md").write_text(text + "".join(f"- {one}\n" for one in self.wrong))
        print(text)
        for one in self.wrong:
            print(f"wrong: {one}")
        cost = f"launches during {100 * during / before - 100:+.0f} %, after {100 * after / before - 100:+.0f} %" if before else ""
        print(f"{'wrong' if self.wrong else 'clean'}: {', '.join(self.said)}; {cost}")
        return 1 if self.wrong else 0


def loads(text):
    names = text.split(",")
    if unknown := set(names) - set(LOADS):
        raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are {', '.join(LOADS)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpuloom", type=pathlib.Path, required=True)
    parser.add_argument("--bench", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--state-dir", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=5, help="each trace (default: %(default)s)")
    parser.add_argument("--loads", type=loads, metavar="A,B", help="these only (default: all)")
    parser.add_argument("--softgpu", action="store_true")
    options = parser.parse_args()
    try:
        return Check(options).run()
    except processes.Failed as failed:
        print(f"wrong: {failed}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
