# SPDX-License-Identifier: Apache-2.0
"""Lines about inference with high priority beside work with low: requests that arrive at random (Poisson), at half of
what the program reaches natively alone, while two trainings, or large products, always want the GPU.

Each side's processes are started, measured alone and together, and ended, before the next side's: what a line shows is
what a program's figure beside others is of the same side's alone.
"""

import time

from processes import Failed
from program_lines import Player, command_of

SERVER, TRAININGS, PRODUCTS = "resnet50_b1", ["transformer_training"] * 2, "gemm_4096"
ROWS = ("sharing_inference_p99_beside_training", "sharing_training_beside_inference",
        "sharing_inference_p99_beside_gemm")
SEED = 1


class Company:
    """The processes of one side, prepared; for the length of a with-statement."""

    def __init__(self, run, side, command):
        self.run, self.side, self.command = run, side, command
        self.players = []

    def __enter__(self):
        try:
            for name in (SERVER, *TRAININGS, PRODUCTS):
                terms = ["--priority", "high" if name == SERVER else "low"]
                self.players.append(Player(self.run.sides, self.side, name, self.command(name), terms))
            for player in self.players:
                player.answer("imported", 120)
            for player in self.players:  # one after the other: each warms up with the GPU to itself
                player.ask(f"prepare {self.run.options.prepare_s}")
                player.answer("ready", 120)
        except BaseException:
            self.__exit__()
            raise
        self.server, self.trainings, self.products = self.players[0], self.players[1:-1], self.players[-1:]
        return self

    def __exit__(self, *_):
        for player in self.players:
            player.bench.process.stdin.close()
        for player in self.players:
            player.end()

    def play(self, others=(), per_second=None, server=True):
        """One round, the server first if it plays: steps without a pause, or so many requests a second."""
        options = self.run.options
        start_s = time.monotonic() + 0.02
        when = f"{start_s} {options.warm_s} {options.inference_s}"
        players = ([self.server] if server else []) + list(others)
        for player in players:
            arrive = player is self.server and per_second is not None
            player.ask(f"arrive {when} {per_second} {SEED}" if arrive else f"run {when}")
        return [player.answer("ran", 4 * options.inference_s + 60) for player in players]


def rate(answers):
    return sum(answer["steps"] / answer["seconds"] for answer in answers)


def measure_side(run, side, asked, command):
    """All rows of one side. `asked`: requests a second, None where this side says it. Returns it."""
    results = run.results
    with Company(run, side, command) as company:
        capacity = rate(company.play())
        if asked is None:
            asked = capacity / 2
        left = 1 - asked / capacity
        if left <= 0:
            raise Failed(f"reaches {capacity:.4g} requests a second alone, and is asked for {asked:.4g}")
        run.say(f"inference: {side}: {capacity:.4g}/s alone, asked for {asked:.4g}/s")
        for _ in range(run.options.rounds):
            alone = company.play(per_second=asked)[0]["p99_ms"]
            undisturbed = rate(company.play(company.trainings, server=False))
            served, *trained = company.play(company.trainings, asked)
            beside_products = company.play(company.products, asked)[0]["p99_ms"]
            for row, unit, value in zip(ROWS, ("× alone", "× what is left", "× alone"), (
                    served["p99_ms"] / alone, rate(trained) / (left * undisturbed), beside_products / alone)):
                results.add(row, side, unit, value)
    return asked


def measure(run, command=command_of):
    sides = ["native", *(["mps"] if run.mps_environment else []), "gpuloom"]
    if not any(run.wants("sharing", row) for row in ROWS):
        return
    play_s = run.options.inference_s + run.options.warm_s + 0.5
    if run.no_time_for(", ".join(ROWS), len(sides) * (15 + (1 + 4 * run.options.rounds) * play_s)):
        return
    asked = None
    for side in sides:
        with run.part(ROWS[0], side):
            if asked is None and side != "native":
                raise Failed("without a native figure nobody knows how many requests to send")
            asked = measure_side(run, side, asked, command)
