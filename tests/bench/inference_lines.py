# SPDX-License-Identifier: Apache-2.0
"""Lines about inference with high priority beside work with low: requests that arrive at random (Poisson), at half of
what the program reaches natively alone, while two trainings, or large products, always want the GPU.

Each side's processes are started, measured alone and together, and ended, before the next side's: what a line shows is
what a program's figure beside others is of the same side's alone. What the requests leave of the device is the same for all
sides: for how long the device works for one, by CUPTI natively, says it.
"""

import dataclasses

from company import Company, measure_sides, sides_of
from processes import Failed
from program_lines import command_of, rate

SERVER, TRAININGS, PRODUCTS = "resnet50_b1", ["transformer_training"] * 2, "gemm_4096"
ROWS = ("sharing_inference_p99_beside_training", "sharing_training_beside_inference",
        "sharing_inference_p99_beside_gemm")
SEED = 1
STEPS = 20  # of which CUPTI says how long the device works


@dataclasses.dataclass
class Asked:
    """The requests, the same for all sides."""

    rate: float  # a second
    left: float  # the part of the device's time that they do not need


def members():
    return [(name, ["--priority", "high" if name == SERVER else "low"]) for name in (SERVER, *TRAININGS, PRODUCTS)]


def rates(answers):
    return sum(map(rate, answers))


def ask_for(server, capacity):
    server.ask(f"busy {STEPS}")
    rate_asked = capacity / 2
    return Asked(rate_asked, 1 - rate_asked * server.answer("busy", 120)["device_s"])


def measure_side(run, side, asked, command):
    """All rows of one side. `asked`: None where this side says it. Returns it."""
    results, seconds = run.results, run.options.inference_s
    with Company(run, side, members(), command) as company:
        server, *trainings, products = company.players
        capacity = rate(company.play([server], seconds)[0])
        asked = asked or ask_for(server, capacity)
        if asked.rate >= capacity:
            raise Failed(f"reaches {capacity:.4g} requests a second alone, and is asked for {asked.rate:.4g}")
        run.say(f"inference: {side}: {capacity:.4g}/s alone, asked for {asked.rate:.4g}/s, which leave {100 * asked.left:.3g} % of the device")
        for _ in range(run.options.rounds):
            requests = {server: (asked.rate, SEED)}
            alone = company.play([server], seconds, requests)[0]["p99_ms"]
            undisturbed = rates(company.play(trainings, seconds))
            served, *trained = company.play([server, *trainings], seconds, requests)
            beside_products = company.play([server, products], seconds, requests)[0]["p99_ms"]
            for row, unit, value in zip(ROWS, ("× alone", "× what is left", "× alone"), (
                    served["p99_ms"] / alone, rates(trained) / (asked.left * undisturbed), beside_products / alone)):
                results.add(row, side, unit, value)
    return asked


def measure(run, command=command_of):
    sides = sides_of(run, (1,))
    if not any(run.wants("sharing", row) for row in ROWS):
        return
    play_s = run.options.inference_s + run.options.warm_s + 0.5
    if run.no_time_for(", ".join(ROWS), len(sides) * (15 + (1 + 4 * run.options.rounds) * play_s)):
        return
    measure_sides(run, sides, lambda _: ROWS[0], "how many requests to send",
                  lambda side, domains, known: measure_side(run, side, known, command))
