# SPDX-License-Identifier: Apache-2.0
"""Lines about two servers of a language model on one device: token by token, with a cache that grows, and 2, 8 or 32
requests in flight at each.

What a line shows is the slower server's rate by the rate natively of one that has the device to itself. A second row
says for how much of the time a device works for both of them natively alone, together: beyond 90 % nobody can give both
what they had.
"""

import dataclasses

from company import Company, measure_sides, sides_of
from processes import Failed
from program_lines import command_of, rate
from sharing_lines import SUFFIXES

IN_FLIGHT = (2, 8, 32)
STEPS = 20  # of which CUPTI says how long the device works


@dataclasses.dataclass
class Alone:
    """What a server does that has the device to itself, natively; by requests in flight."""

    rates: dict
    checks: dict


def program(requests):
    return f"language_model_{requests}"


def row(requests):
    return f"sharing_language_{requests}"


def members(domains):
    second = ["--domain", "second"] if domains == 2 else []
    return [(program(requests), terms) for requests in IN_FLIGHT for terms in ([], second)]


def pairs(company):
    return zip(IN_FLIGHT, zip(company.players[::2], company.players[1::2]))


def measure_alone(run, company):
    alone = Alone({}, {})
    for requests, (server, _) in pairs(company):
        alone.checks[requests] = server.check
        alone.rates[requests] = rate(company.play([server], run.options.language_s)[0])
        server.ask(f"busy {STEPS}")
        busy = 2 * 100 * server.answer("busy", 120)["device_s"] * alone.rates[requests]
        run.results.add(f"{row(requests)}_busy", "native", "% of the device", busy)
        run.say(f"{program(requests)}: {alone.rates[requests]:.4g} steps/s alone; two keep the device {busy:.3g} % busy")
    return alone


def measure_side(run, side, domains, alone, command):
    """Every row of one side. Returns what is native alone, where this side says it."""
    with Company(run, side, members(domains), command) as company:
        alone = alone or measure_alone(run, company)
        for requests, players in pairs(company):
            for player in players:
                if player.check != alone.checks[requests]:
                    raise Failed(f"{program(requests)}: chose {player.check}, and {alone.checks[requests]} natively")
        for _ in range(run.options.rounds):
            for requests, players in pairs(company):
                reached = [rate(answer) / alone.rates[requests] for answer in company.play(players, run.options.language_s)]
                run.say(f"{row(requests)}: {side}: {', '.join(f'{one:.3f}' for one in reached)}")
                for suffix in [SUFFIXES[domains]] if side == "gpuloom" else SUFFIXES.values():
                    run.results.add(row(requests) + suffix, side, "× alone natively", min(reached))
    return alone


def rows():
    return [row(requests) + suffix for requests in IN_FLIGHT for suffix in (*SUFFIXES.values(), "_busy")]


def measure(run, command=command_of):
    sides = sides_of(run, (1, 2))
    if not any(run.wants("sharing", name) for name in rows()):
        return
    play_s = len(IN_FLIGHT) * (run.options.language_s + run.options.warm_s + 0.1)
    if run.no_time_for(", ".join(rows()), len(sides) * (20 + run.options.rounds * play_s) + play_s):
        return
    measure_sides(run, sides, lambda domains: row(IN_FLIGHT[0]) + SUFFIXES[domains], "what a server reaches alone",
                  lambda side, domains, known: measure_side(run, side, domains, known, command))
