# SPDX-License-Identifier: Apache-2.0
"""Programs of one side that work alone and together (program_lines' Player), for lines whose sides do not alternate."""

import time

from processes import Failed, end_all
from program_lines import Player


class Company:
    """The processes of one side, prepared; for the length of a with-statement. `members`: (program's name, its terms)."""

    def __init__(self, run, side, members, command):
        self.run, self.side, self.members, self.command = run, side, members, command
        self.players = []

    def __enter__(self):
        try:
            for name, terms in self.members:
                self.players.append(Player(self.run.sides, self.side, name, self.command(name), terms))
            for player in self.players:
                player.answer("imported", 120)
            for player in self.players:  # one after the other: each warms up with the GPU to itself
                player.ask(f"prepare {self.run.options.prepare_s}")
                player.check = player.answer("ready", 120)["check"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        end_all(self.players)

    def play(self, players, seconds, arrivals=None):
        """One round of these, their answers in order: steps without a pause, or, for those in `arrivals` (player →
        (requests a second, seed)), requests that arrive at random."""
        start_s = time.monotonic() + 0.02
        when = f"{start_s} {self.run.options.warm_s} {seconds}"
        for player in players:
            if arrivals and player in arrivals:
                player.ask("arrive {} {} {}".format(when, *arrivals[player]))
            else:
                player.ask(f"run {when}")
        return [player.answer("ran", 4 * seconds + 60) for player in players]


def sides_of(run, tenants):
    """(side, domains): native, MPS where it is, and gpuloom with each of these numbers of domains."""
    return [("native", 1), *([("mps", 1)] if run.mps_environment else []), *(("gpuloom", domains) for domains in tenants)]


def measure_sides(run, sides, row_of, unknown, measure_side):
    """Calls measure_side(side, domains, known) for each; `known` is what it returned natively, without which, so `unknown`, no
    other side has figures. row_of(domains): the line that has failed then."""
    known = None
    for side, domains in sides:
        with run.part(row_of(domains), side):
            if known is None and side != "native":
                raise Failed(f"without a native figure nobody knows {unknown}")
            known = measure_side(side, domains, known)
