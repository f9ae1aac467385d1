# SPDX-License-Identifier: Apache-2.0
"""Lines about single calls: rounds of gpuloom-bench processes, each of which measures all of them, natively or as tenant."""

import time

from processes import Failed

# Units of the program's lines as the table shows them: unit → (shown unit, factor).
SHOWN = {"launches/s": ("1000 launches/s", 1e-3)}


def check(run, side):
    """Right before fast. Leaves no line in the table unless it fails."""
    with run.part("check", side):
        bench = run.sides.start(side, "--check")
        try:
            said = list(bench.lines(timeout_s=60))
            if not said or said[-1] != {"name": "check", "ok": True}:
                raise Failed(f"{bench.what}: {said[-1] if said else 'said nothing'}")
        finally:
            bench.end(timeout_s=5)


def measure_round(run, side, number):
    """All lines of one process."""
    with run.part("lines", side):
        bench = run.sides.start(side, *run.selection.bench_arguments("micro"), "--seed", str(number + 1), *run.tiny())
        try:
            seen = 0
            for line in bench.lines(timeout_s=240):
                seen += 1
                if "error" in line:
                    run.results.add_error(line["name"], side, line["error"])
                elif "median" in line:
                    unit, factor = SHOWN.get(line["unit"], (line["unit"], 1))
                    run.results.add(line["name"], side, unit, line["median"] * factor)
            if not seen or bench.process.returncode < 0 or bench.process.returncode > 1:
                raise Failed(f"{bench.what}: ended with status {bench.process.returncode}")
        finally:
            bench.end(timeout_s=5)


def measure_first_start(run, side):
    """From nothing: for gpuloom, scheduler and executor start too."""
    with run.part("start_up_first", side):
        bench = run.sides.start(side, "--first-kernel")
        try:
            line = bench.line(time.monotonic() + 60)
            if line is None or not line.isdigit():
                raise Failed(f"{bench.what}: {line or 'said nothing'}")
            run.results.add("start_up_first", side, "ms", (int(line) / 1e9 - bench.started_s) * 1e3)
        finally:
            bench.end()


def measure(run):
    for side in run.in_turn(0):
        check(run, side)
    for number in range(run.options.rounds):
        if number and run.no_time_for(f"round {number + 1} of the calls", 100 if run.full else 0):
            return
        for side in run.in_turn(number):
            run.say(f"round {number + 1} of {run.options.rounds}")
            if run.wants("micro", "start_up_first"):
                measure_first_start(run, side)
            measure_round(run, side, number)
