#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a pack (tests/bench/pack.sh) or a build on this machine's GPU, in one run of limited time.

usage: check_gpu.py [--pack DIR] --out OUT [--stages A,B] [--budget SECONDS]

Stages run one after the other, what is in a stage side by side, each thing in a trust domain or with a scheduler of its own:

  confined     a program, and the log: the executor is fully confined and no call of its was refused
  conformance  gpuloom-conformance through gpuloom, each test in a process of its own, in shards
  faults       those of its tests that break their domain
  stack        the sharing, death and hostile tests of the whole stack
  programs     CUDA C++ programs, PyTorch and JAX, natively and through gpuloom (side_by_side)
  launches     the launch lines of the benchmark, quickly
  trace        traces of two tenants: CUPTI attaches in a confined executor, each kernel is its tenant's, and what ran is what
               was charged (tests/bench/trace_check.py: OUT/trace/report.md)
  sequences    valid sequences of calls, by threads and processes (--sequences SECONDS)
  hostility    random hostile tenants beside honest ones (--hostility SECONDS)

The table goes to OUT/report.md as far as it has come, all output to OUT/logs. Exit status 0: everything passed.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

STAGES = ("confined", "conformance", "faults", "stack", "programs", "launches", "trace", "sequences", "hostility")
FAULTS = "Init*:Fault*:Fork*"
# What they say last of what they did.
SUMMARY = re.compile(r"^(\[  (?:PASSED|FAILED)  \].*|\[=+\] .* ran.*|\d+ (?:equal|sessions|episodes).*|.*\bclean\b.*)$", re.M)

REFUSED = re.compile(r" warning .* was refused (?:system call )?\d+|does not start in a fully confined")


@dataclasses.dataclass
class Check:
    name: str
    command: list
    seconds: float                   # its limit
    environment: dict = dataclasses.field(default_factory=dict)
    state: pathlib.Path = None       # where a scheduler of its own keeps its log
    confined: bool = False           # the log must say so
    status: str = "not run"
    took: float = 0
    says: str = ""


class Pack:
    """Where things lie: in a pack, or in a build tree and the sources beside it."""

    def __init__(self, folder):
        self.folder = folder
        self.sources = pathlib.Path(__file__).resolve().parent

    def find(self, *candidates):
        for candidate in candidates:
            if candidate.exists():
                return candidate
        sys.exit(f"check_gpu: {candidates[0]} is missing: pack it, or build it first")

    def program(self, name):
        return self.find(self.folder / "tests" / name, self.folder / "tests/bench" / name, self.folder / "bin" / name)

    def script(self, name, of):
        return self.find(self.folder / "tests" / name, self.sources / of / name)


class Plan:
    def __init__(self, pack, options):
        self.pack = pack
        self.options = options
        self.driver = ["--softgpu"] if options.softgpu else []

    def through(self, name, *command, slots=1, domain=None):
        """The command through gpuloom, with a scheduler of its own where it has no domain that others share."""
        state = self.options.out / "state" / (domain or name)
        arguments = [self.pack.program("gpuloom"), "run", "--slots", str(slots), "--domain", domain or name, "--state-dir", state,
                     *self.driver, "--", *command]
        return arguments, state

    def stack_test(self, name):
        environment = {"GPULOOM_PACK": str(self.pack.folder)} if (self.pack.folder / ".gpuloom-pack").exists() else {}
        if not self.options.softgpu:
            environment["GPULOOM_TEST_DRIVER"] = "libcuda.so.1"
        return self.pack.program(f"gpuloom_{name}_test"), environment

    def confined(self):
        command, state = self.through("confined", self.pack.program("programs/vadd_static"))
        test, environment = self.stack_test("sharing")
        yield Check("a program", command, 60, state=state, confined=True)
        yield Check("the executor's confinement", [test, "--gtest_filter=*Confined*"], 60, environment)

    def conformance(self):
        shards = self.options.shards
        for shard in range(shards):
            command, state = self.through(f"conformance {shard}", self.pack.program("gpuloom-conformance"), "--apart",
                                          f"--gtest_filter={self.options.filter}-{FAULTS}", domain="conformance")
            yield Check(f"conformance, shard {shard + 1} of {shards}", command, 400,
                        {"GTEST_TOTAL_SHARDS": str(shards), "GTEST_SHARD_INDEX": str(shard)}, state=state)

    def faults(self):
        command, state = self.through("faults", self.pack.program("gpuloom-conformance"), f"--gtest_filter={FAULTS}")
        yield Check("faults", command, 120, state=state)

    def stack(self):
        for name in ("sharing", "death", "hostile"):
            test, environment = self.stack_test(name)
            yield Check(name, [test], 300, environment)

    def programs(self):
        script = self.pack.find(self.pack.folder / "tests/side_by_side/run.py", self.pack.sources / "side_by_side/run.py")
        command = [sys.executable, "-B", script, "--out", self.options.out / "side_by_side", "--jobs", "4", "--budget", "240"]
        if not (self.pack.folder / ".gpuloom-pack").exists():
            command += ["--build", self.pack.folder]
        for only in self.options.programs:
            command += ["--only", only]
        yield Check("programs, both sides", command + self.driver, 300)

    def launches(self):
        command = [sys.executable, "-B", self.pack.script("run.py", "bench"), "--bench", self.pack.program("gpuloom-bench"),
                   "--gpuloom", self.pack.program("gpuloom"), "--quick", "--only", "launch_", "--budget", "90",
                   "--out", self.options.out / "launches.md"]
        if self.options.softgpu:
            command += ["--native", self.pack.folder / "lib/softgpu/libcuda.so.1"]
        yield Check("launches", command + self.driver, 120)

    def trace(self):
        state = self.options.out / "state/trace"
        command = [sys.executable, "-B", self.pack.script("trace_check.py", "bench"), "--bench",
                   self.pack.program("gpuloom-bench"), "--gpuloom", self.pack.program("gpuloom"), "--out", self.options.out / "trace",
                   "--state-dir", state]
        yield Check("traces against charges", command + self.driver, 180, state=state)

    def sequences(self):
        seconds = self.options.sequences
        for processes in (1, 3):
            command, state = self.through(f"sequences {processes}", self.pack.program("gpuloom-valid-sequences"), "--seconds",
                                          str(seconds), "--threads", "4", "--processes", str(processes), slots=4)
            yield Check(f"sequences, processes: {processes}", command, seconds + 60, state=state)

    def hostility(self):
        test, environment = self.stack_test("hostile")
        command = [test.with_name("gpuloom-random-hostility"), "--seconds", str(self.options.hostility), "--log",
                   self.options.out / "logs/hostility_executors.log"]
        yield Check("random hostility", command, self.options.hostility + 60, environment)


def run_side_by_side(checks, logs, deadline):
    running = []
    for check in checks:
        log = open(logs / (re.sub(r"[^a-z0-9]+", "_", check.name.lower()) + ".log"), "wb")
        began = time.monotonic()
        process = subprocess.Popen([str(word) for word in check.command], stdout=log, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True,
                                   env={**os.environ, **check.environment})
        running.append((check, process, log, began))
    for check, process, log, began in running:
        limit = min(began + check.seconds, deadline)
        try:
            status = process.wait(max(limit - time.monotonic(), 0.1))
            check.status = "passed" if status == 0 else "skipped" if status == 77 else f"failed ({status})"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            check.status = f"cut off after {limit - began:.0f} s"
        check.took = time.monotonic() - began
        log.close()
        text = pathlib.Path(log.name).read_text(errors="replace")
        last = SUMMARY.findall(text) or [line for line in text.splitlines() if line.strip()][-1:]
        check.says = last[-1].strip() if last else ""
        judge_log(check)


def judge_log(check):
    """What the scheduler and its executors wrote: a system call that was refused fails the check, too."""
    if check.state is None:
        return
    log = check.state / "scheduler.log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    wrong = next((line for line in lines if REFUSED.search(line) or check.confined and "confined without" in line), None)
    confined = next((line for line in lines if "confined: " in line), None)
    if check.confined:
        wrong = wrong or (None if confined else "nothing about confinement in " + str(log))
        check.says = confined or check.says
    if wrong:
        check.says = wrong
        if check.status == "passed":
            check.status = "failed (log)"


def write_report(out, checks, took):
    rows = [f"| {c.name} | {c.status} | {c.took:.0f} s | {c.says.replace('|', '/')[:160]} |" for c in checks]
    text = "\n".join(["| check | | took | says |", "| --- | --- | --- | --- |", *rows, "", f"{took:.0f} s in all", ""])
    (out / "report.md").write_text(text)
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1],
                        help="a pack, or a build tree (default: the pack that this file lies in)")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--stages", default=",".join(STAGES), help="these, in this order (default: all)")
    parser.add_argument("--budget", type=float, default=590, metavar="SECONDS", help="for everything (default: %(default)s)")
    parser.add_argument("--shards", type=int, default=6, help="of the conformance tests (default: %(default)s)")
    parser.add_argument("--filter", default="*", help="these conformance tests (default: all)")
    parser.add_argument("--programs", type=lambda text: text.split(","), metavar="GLOB,…",
                        default=["programs/*", "frameworks/pytorch*", "frameworks/jax*"])
    parser.add_argument("--sequences", type=int, default=60, metavar="SECONDS")
    parser.add_argument("--hostility", type=int, default=60, metavar="SECONDS")
    parser.add_argument("--softgpu", action="store_true", help="the software GPU, to try this without another one")
    options = parser.parse_args()
    stages = options.stages.split(",")
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown:
        parser.error(f"no stage {unknown[0]}; there are {', '.join(STAGES)}")
    options.out = options.out.resolve()
    (options.out / "logs").mkdir(parents=True, exist_ok=True)

    plan = Plan(Pack(options.pack.resolve()), options)
    planned = [(stage, list(getattr(plan, stage)())) for stage in stages]
    began = time.monotonic()
    done = [check for _, checks in planned for check in checks]
    for stage, checks in planned:
        left = began + options.budget - time.monotonic()
        if left < 5:
            break
        print(f"== {time.monotonic() - began:4.0f}s  {stage}", flush=True)
        run_side_by_side(checks, options.out / "logs", began + options.budget)
        write_report(options.out, done, time.monotonic() - began)
    print(write_report(options.out, done, time.monotonic() - began))
    return 0 if all(check.status in ("passed", "skipped") for check in done) else 1


if __name__ == "__main__":
    sys.exit(main())
