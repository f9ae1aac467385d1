# SPDX-License-Identifier: Apache-2.0
"""Lines about a program that only copies, as one that loads a model does, beside one that computes: each one's rate by what it
reaches natively with the device to itself. Copies need none of what computes, so both are to keep what they have."""

from company import Company, measure_sides, sides_of
from program_lines import command_of, rate
from sharing_lines import SUFFIXES

COPIES, PRODUCTS = "pinned_copies", "gemm_4096"
ROWS = ("sharing_copies_beside_gemm", "sharing_gemm_beside_copies")


def members(domains):
    return [(COPIES, []), (PRODUCTS, ["--domain", "second"] if domains == 2 else [])]


def measure_side(run, side, domains, alone, command):
    """Both rows of one side. Returns the rates natively alone, where this side says them."""
    seconds = run.options.inference_s
    with Company(run, side, members(domains), command) as company:
        alone = alone or [rate(company.play([player], seconds)[0]) for player in company.players]
        for _ in range(run.options.rounds):
            reached = [rate(answer) / own for answer, own in zip(company.play(company.players, seconds), alone)]
            run.say(f"copies beside products: {side}: {', '.join(f'{one:.3f}' for one in reached)}")
            for row, value in zip(ROWS, reached):
                for suffix in [SUFFIXES[domains]] if side == "gpuloom" else SUFFIXES.values():
                    run.results.add(row + suffix, side, "× alone natively", value)
    return alone


def rows():
    return [row + suffix for row in ROWS for suffix in SUFFIXES.values()]


def measure(run, command=command_of):
    sides = sides_of(run, (1, 2))
    if not any(run.wants("sharing", name) for name in rows()):
        return
    play_s = run.options.inference_s + run.options.warm_s + 0.1
    if run.no_time_for(", ".join(rows()), len(sides) * (10 + run.options.rounds * play_s) + 2 * play_s):
        return
    measure_sides(run, sides, lambda domains: ROWS[0] + SUFFIXES[domains], "what a program reaches alone",
                  lambda side, domains, known: measure_side(run, side, domains, known, command))
