# SPDX-License-Identifier: Apache-2.0
"""Lines about cold starts on a node whose scheduler runs, as an agent's does: from a program's start to its first kernel, when it
is the first of its trust domain; alone, and six at once. Natively a first process keeps the GPU awake meanwhile, as the
scheduler does."""

import contextlib
import os
import pathlib
import subprocess
import time

import node
from processes import Failed, Holders

AT_ONCE = 6
# (line, programs at once, spare executors)
LINES = (("domain_start", 1, 0), ("domain_start_spare", 1, 1), (f"domain_start_x{AT_ONCE}", AT_ONCE, 0),
         (f"domain_start_x{AT_ONCE}_spare", AT_ONCE, 1))
SPARE_PATIENCE_S = 20
SLOTS = 10  # the chart's default; an agent gives the contexts on its GPUs as many hardware queues


@contextlib.contextmanager
def scheduler(run, spares):
    """One that outlives its tenants."""
    program = pathlib.Path(run.options.gpuloom).resolve().parent / "gpuloom-scheduler"
    library = ["--cuda-library", run.options.native] if run.options.softgpu else []
    log = pathlib.Path(run.state_dir) / "start_lines.log"
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen([program, "--gpu", str(run.options.gpu), *library, "--state-dir", run.state_dir,
                                    "--spare-executors", str(spares), "--idle-timeout", "1s"], stdout=file, stderr=file,
                                   env={"CUDA_DEVICE_MAX_CONNECTIONS": str(SLOTS), **os.environ})
    try:
        wait_for(lambda: (pathlib.Path(run.state_dir) / "control.sock").exists(), f"the scheduler's socket: {log.read_text()}")
        yield log
    finally:
        process.terminate()
        process.wait(30)
        run.wait_for_node_to_end()


def wait_for(condition, what):
    deadline_s = time.monotonic() + SPARE_PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise Failed(f"no {what}")
        time.sleep(0.01)


def first_kernels_ms(run, side, count, name):
    """When the last of so many programs, started together, has done its first kernel."""
    group = []
    try:
        begin_s = time.clock_gettime(time.CLOCK_MONOTONIC)
        for number in range(count):
            group.append(run.sides.start(side, "--first-kernel", terms=("--domain", f"{name}-{number}")))
        last_s = 0.0
        for bench in group:
            line = bench.line(time.monotonic() + 60)
            if line is None or not line.isdigit():
                raise Failed(f"{bench.what}: {line or 'said nothing'}")
            last_s = max(last_s, int(line) / 1e9)
        return (last_s - begin_s) * 1e3
    finally:
        for bench in group:
            bench.end()


def measure_line(run, name, side, count, spares):
    times = 3 if run.full else 1
    with run.part(name, side):
        if side == "native":
            with Holders(run.sides, side, 1, 120):
                for _ in range(times):
                    run.results.add(name, side, "ms", first_kernels_ms(run, side, count, name))
            return
        with scheduler(run, spares) as log:
            for _ in range(times):
                if spares:
                    wait_for(lambda: spare_is_ready(log), "spare executor that is ready")
                run.results.add(name, side, "ms", first_kernels_ms(run, side, count, f"{name}-{run.starts}"))
                run.starts += 1
                wait_for(lambda: no_domain_is_left(run, spares), "end of the idle executors")


def spare_is_ready(log):
    """Of each spare executor the log says when it is ready, and once it is taken that it is another now."""
    ready = taken = 0
    for line in log.read_text().splitlines():
        ready += "spare executor" in line and line.endswith(" is ready")
        taken += "spare executor" in line and " is now the " in line
    return ready > taken


def no_domain_is_left(run, spares):
    return len(node.node_processes(run.state_dir)) <= 1 + spares


def measure(run):
    run.starts = 0
    for number in range(run.options.rounds):
        for name, count, spares in LINES:
            if not run.wants("starts", name) or run.no_time_for(name, 12 if run.full else 0):
                continue
            for side in run.in_turn(number):
                measure_line(run, name, side, count, spares)
