# SPDX-License-Identifier: Apache-2.0
"""Lines about what the sharing of the GPU's time costs a tenant that is alone: gpuloom by gpuloom with sharing off. Machines
have processors at more than one speed, and a single round on each side may differ by a third for that alone: so a round has
several turns of both sides, one right behind the other's, and each is a ratio."""

import functools

from company import Company
from processes import Failed
from program_lines import command_of, rate

CALLS = ("launch_call", "launch_sync", "launch_sustained", "launch_sustained_changing")
PROGRAMS = ("resnet50_b1", "transformer_training")
SIDES = ("gpuloom", "unshared")
UNIT = "× sharing off"
TURNS = 4  # of a round
PROGRAM_TURNS = 16  # short ones, of a process that stays


def row(line):
    return f"sharing_alone_{line}"


def speeds_of_calls(run, side, number):
    """By line: how fast, the more the better."""
    bench = run.sides.start(side, "--only", ",".join(CALLS), "--seed", str(number + 1), *run.tiny())
    try:
        speeds = {}
        for line in bench.lines(timeout_s=120):
            if "error" in line:
                raise Failed(f"{bench.what}: {line['name']}: {line['error']}")
            if line.get("name") in CALLS:
                speeds[line["name"]] = line["median"] if line["unit"].endswith("/s") else 1 / line["median"]
        return speeds
    finally:
        bench.end(timeout_s=5)


def keep(run, speeds):
    """Those of one turn: side → line → speed."""
    for line, shared in speeds["gpuloom"].items():
        ratio = shared / speeds["unshared"][line]
        run.say(f"{row(line)}: {ratio:.4g} {UNIT}")
        run.results.add(row(line), "gpuloom", UNIT, ratio)


def measure_calls(run, number, speeds_of=speeds_of_calls):
    """A process of its own for each turn of a side."""
    for turn in range(number * TURNS, (number + 1) * TURNS):
        speeds = {}
        for side in run.in_turn(turn, SIDES):
            with run.part(row(CALLS[0]), side):
                speeds[side] = speeds_of(run, side, turn)
        if len(speeds) == len(SIDES):
            keep(run, speeds)


def measure_program(run, number, name, command=command_of):
    """One process on each side, which take turns."""
    def speed(company):
        return {name: rate(company.play(company.players, run.options.seconds / 4)[0])}

    with run.part(row(name), "gpuloom"):
        with Company(run, "gpuloom", [(name, ())], command) as shared, Company(run, "unshared", [(name, ())], command) as unshared:
            for turn in range(number * PROGRAM_TURNS, (number + 1) * PROGRAM_TURNS):
                keep(run, {company.side: speed(company) for company in run.in_turn(turn, (shared, unshared))})
    run.wait_for_node_to_end("unshared")


def measure(run, calls=measure_calls, program=measure_program):
    parts = [(CALLS, calls, 4 * TURNS)]
    if run.full:
        parts += [((name,), functools.partial(program, name=name), 15 + PROGRAM_TURNS * run.options.seconds / 4) for name in PROGRAMS]
    for number in range(run.options.rounds):
        for lines, measure_part, seconds in parts:
            if not any(run.wants("sharing", row(line)) for line in lines):
                continue
            if run.no_time_for(f"round {number + 1} of {row(lines[0])}", 2 * seconds if run.full else 0):
                return
            measure_part(run, number)
