# SPDX-License-Identifier: Apache-2.0
"""Lines about what the sharing of the GPU's time costs a tenant that is alone: gpuloom by gpuloom with sharing off, side by
side in one round. Each side has a scheduler of its own, which ends before the other's begins."""

import functools
import time

from processes import Failed, end_all
from program_lines import Player, command_of, rate

CALLS = ("launch_call", "launch_sync", "launch_sustained", "launch_sustained_changing")
PROGRAMS = ("resnet50_b1", "transformer_training")
SIDES = ("gpuloom", "unshared")
UNIT = "× sharing off"


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


def speeds_of_program(name, run, side, _number, command=command_of):
    player = Player(run.sides, side, name, command(name))
    try:
        player.answer("imported", 120)
        player.ask(f"prepare {run.options.prepare_s}")
        player.answer("ready", 120)
        player.ask(f"run {time.monotonic() + 0.02} {run.options.warm_s} {run.options.seconds}")
        return {name: rate(player.answer("ran", 4 * run.options.seconds + 60))}
    finally:
        end_all([player])


def measure_part(run, name, speeds_of, number):
    """One round of both sides."""
    speeds = {}
    for side in run.in_turn(number, SIDES):
        with run.part(row(name), side):
            speeds[side] = speeds_of(run, side, number)
        run.wait_for_node_to_end()
    if len(speeds) < len(SIDES):
        return
    for line, shared in speeds["gpuloom"].items():
        ratio = shared / speeds["unshared"][line]
        run.say(f"{row(line)}: {ratio:.4g} {UNIT}")
        run.results.add(row(line), "gpuloom", UNIT, ratio)


def measure(run):
    parts = [(CALLS[0], CALLS, speeds_of_calls, 8)]
    if run.full:
        parts += [(name, (name,), functools.partial(speeds_of_program, name), 30) for name in PROGRAMS]
    for number in range(run.options.rounds):
        for name, lines, speeds_of, seconds in parts:
            if not any(run.wants("sharing", row(line)) for line in lines):
                continue
            if run.no_time_for(f"round {number + 1} of {row(name)}", 2 * seconds if run.full else 0):
                return
            measure_part(run, name, speeds_of, number)
