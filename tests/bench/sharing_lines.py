# SPDX-License-Identifier: Apache-2.0
"""Lines about who gets what of the GPU's time: processes of gpuloom-bench that compete, natively (time-sliced), under
MPS and as tenants of one trust domain or of two.

The kernel of each length is calibrated before each round, by a native process with the GPU to itself, and all processes
of all sides launch the same one: a length is the same everywhere, and nobody calibrates under a ceiling.
"""

import dataclasses
import json
import pathlib
import subprocess
import time
import typing

import sharing
from processes import Failed, end_all
from sharing import Tenant

WARM_S = 0.2  # work.cc's
SUFFIXES = {1: "", 2: "_domains"}  # of a row's name, by the number of trust domains


@dataclasses.dataclass
class Outcome:
    tenants: list
    work: list  # as sharing's functions take it
    ready: list  # what each process said of itself
    answers: list
    changed_s: float = 0.0  # when weights were exchanged, from the first window's begin


@dataclasses.dataclass
class Figure:
    name: str
    unit: str
    of: typing.Callable  # of an Outcome
    on_off: bool = False  # also as a ratio of gpuloom's to that with sharing off


@dataclasses.dataclass
class Line:
    tenants: list
    figures: list
    domains: tuple = (1,)  # in how many trust domains
    sides: tuple = ("native", "mps", "gpuloom")
    exchange: bool = False  # from the middle on, the two tenants have each other's weights
    of_rate: bool = False  # figures are per cent of what the first does on that side by itself and without limits

    def rows(self):
        return [figure.name + suffix for figure in self.figures
                for suffix in [SUFFIXES[count] for count in self.domains] + ["_on_off"] * figure.on_off]


def share_of_first(outcome):
    return 100 * sharing.shares(outcome.work)[0]


def error(outcome):
    return sharing.greatest_error(outcome.work, [tenant.weight for tenant in outcome.tenants])


def busy(outcome):
    return sharing.device_busy(outcome.work)


def busy_of(number):
    return lambda outcome: sharing.device_busy([outcome.work[number]])


def spread(outcome):
    return sharing.luckiest_to_unluckiest(outcome.work)


def longest_wait(outcome):
    """Of the requests of the first: beyond what one takes alone."""
    if "longest_us" not in outcome.answers[0]:
        raise Failed("no request came in this time")
    return max(0.0, outcome.answers[0]["longest_us"] - outcome.ready[0]["alone_us"])


def longest_alone(outcome):
    """Of requests while nobody else is there: what the machine itself adds to one of many."""
    return outcome.ready[0]["alone_longest_us"] - outcome.ready[0]["alone_us"]


def settled(outcome):
    """How long until the shares were those of the weights exchanged; a round that ended before is a missed goal."""
    seconds = sharing.settled_s(outcome.work, [tenant.weight for tenant in reversed(outcome.tenants)], outcome.changed_s)
    return float("inf") if seconds is None else seconds


def beside(first, second, *more):
    """In two trust domains: the first against all others."""
    return [first] + [dataclasses.replace(tenant, second_domain=True) for tenant in (second, *more)]


def error_line(name, *tenants, **more):
    return Line(beside(*tenants), [Figure(f"sharing_error_{name}", "%", error)], (1, 2), **more)


def lines(full):
    """All of them. On a software driver, three tenants stand for forty."""
    many = 40 if full else 3
    # Of many short blocks: whole waves of them fill any part of the device.
    limited, larger = (Tenant(waves=16, queued=4, sm_percent=percent) for percent in (25, 70))
    return [
        Line(beside(Tenant(queued=64), Tenant(kernel_us=5000, queued=4)),
             [Figure("sharing_short_beside_long", "%", share_of_first), Figure("sharing_error_lengths", "%", error)], (1, 2)),
        *(error_line(f"{name}_lengths", Tenant(weight=short, queued=64), Tenant(kernel_us=5000, queued=4, weight=long),
                     sides=("gpuloom",)) for name, short, long in (("1_3", 100, 300), ("10_90", 10, 90))),
        error_line("1_3", Tenant(weight=100), Tenant(weight=300)),
        error_line("10_90", Tenant(weight=10), Tenant(weight=90)),
        error_line("graphs", Tenant(), Tenant(graph=20, queued=4)),
        error_line("queued16", Tenant(), Tenant(), Tenant(queued=256)),
        error_line("changing", Tenant(changing=True), Tenant(), Tenant(), Tenant()),
        Line([Tenant()] * 2, [Figure("sharing_busy_x2", "%", busy, on_off=True)]),
        Line([Tenant()] * 4, [Figure("sharing_busy_x4", "%", busy, on_off=True)]),
        Line([Tenant(kernel_us=200)] * many,
             [Figure("sharing_spread_x40", "× the unluckiest", spread),
              Figure("sharing_busy_x40", "%", busy, on_off=True)]),
        Line(beside(Tenant(kernel_us=1000, busy_percent=50, priority="high"),
                    Tenant(kernel_us=5000, queued=4, priority="low")),
             [Figure("sharing_longest_wait", "us", longest_wait), Figure("sharing_longest_alone", "us", longest_alone)], (1, 2)),
        Line([Tenant(ceiling_percent=25)], [Figure("sharing_ceiling_25", "%", busy)], sides=("gpuloom",), of_rate=True),
        Line([limited], [Figure("sharing_sm_25", "%", busy)], sides=("gpuloom",), of_rate=True),
        Line([larger], [Figure("sharing_sm_70", "%", busy)], sides=("gpuloom",), of_rate=True),
        Line([limited, larger], [Figure("sharing_sm_25_beside_70", "%", busy_of(0)),
                                 Figure("sharing_sm_70_beside_25", "%", busy_of(1))], sides=("gpuloom",), of_rate=True),
        Line([Tenant(weight=100), Tenant(weight=300)], [Figure("sharing_change", "s", settled)], sides=("gpuloom",),
             exchange=True),
    ]


def calibrate(run, kernel_us):
    """What a process says of a kernel of this length: iterations, kernel_us."""
    bench = run.sides.start("native", "--work", str(kernel_us), *run.tiny())
    try:
        return bench.wait_ready()
    finally:
        bench.end(timeout_s=5)


def exchange_weights(run, tenants, start_ns, seconds):
    """In the middle of the round; when that was done, in seconds from its start."""
    first, second = (tenant.weight for tenant in tenants)
    time.sleep(max(0.0, start_ns / 1e9 + seconds / 2 - time.monotonic()))
    program = pathlib.Path(run.sides.benches["gpuloom"][0]).with_name("gpuloom-change-weights")
    done = subprocess.run([program, run.state_dir, f"{first}={second}", f"{second}={first}"], capture_output=True,
                          text=True, timeout=20)
    if done.returncode:
        raise Failed(done.stderr.strip())
    return (json.loads(done.stdout)["at_ns"] - start_ns) / 1e9


def compete(run, side, tenants, kernels, domains=1, exchange=False):
    """All of them at once, for one round: an Outcome. A round in which a busy machine lets nobody do anything, or no
    request come, says nothing: it is repeated, longer, a few times."""
    for times in (1, 2, 4, 8):
        outcome = compete_for(run.options.sharing_s * times, run, side, tenants, kernels, domains, exchange)
        if any(map(any, outcome.work)) and all(answer.get("requests", 1) for answer in outcome.answers):
            break
    return outcome


def in_words(work):
    """Shares in per cent, of the first few."""
    if not any(map(any, work)):
        return "nothing"
    return ", ".join(f"{100 * share:.1f}" for share in sharing.shares(work)[:4]) + " …" * (len(work) > 4)


def compete_for(seconds, run, side, tenants, kernels, domains, exchange):
    group = []
    try:
        for tenant in tenants:
            group.append(run.sides.start(side, *tenant.work(kernels[tenant.kernel_us]["iterations"], kernels[tenant.kernel_us]["multiprocessors"]),
                                         *run.tiny(),
                                         terms=tenant.terms(domains)))
        ready = [bench.wait_ready() for bench in group]
        windows = round(seconds / sharing.WINDOW_S)
        start_ns = time.monotonic_ns() + round((WARM_S + 0.05) * 1e9)
        for bench in group:
            bench.go(f"run {start_ns} {windows}")
        changed_s = exchange_weights(run, tenants, start_ns, seconds) if exchange else 0.0
        answers = []
        for bench in group:
            said = list(bench.lines(timeout_s=seconds + 60))
            if not said or "windows" not in said[-1]:
                raise Failed(f"{bench.what}: {said[-1].get('error') if said else 'ended without an answer'}")
            answers.append(said[-1])
        work = sharing.busy_us(answers, [kernels[tenant.kernel_us]["kernel_us"] * max(1, tenant.waves) for tenant in tenants])
        if any(map(any, work)):
            said = [f"{sharing.device_busy(part):.1f} % busy, of it {in_words(part)}, luckiest {sharing.luckiest_to_unluckiest(part):.3g}×"
                    for part in sharing.seconds(work)]
            run.say(f"{side}: {in_words(work)} % of what was done; by second: {'; '.join(said)}")
        return Outcome(tenants, work, ready, answers, changed_s)
    finally:
        end_all(group, timeout_s=5)


def rate_percent(run, line, side, kernels):
    """What the first tenant does by itself and without limits, in per cent of what a calibrated device does: launches in a
    row that leave no gap do more."""
    unlimited = dataclasses.replace(line.tenants[0], ceiling_percent=100, sm_percent=100)
    rate = busy(compete(run, side, [unlimited], kernels))
    if not rate:
        raise Failed("nothing was done without limits")
    run.say(f"{line.figures[0].name}: {side}: {rate:.4g} % without limits")
    return rate


def keep(run, line, side, outcome, suffixes, rate=100):
    for figure in line.figures:
        value = figure.of(outcome) * 100 / rate
        run.say(f"{figure.name}{suffixes[0]}: {side}: {value:.4g} {figure.unit}")
        for suffix in suffixes:
            run.results.add(figure.name + suffix, side, figure.unit, value)


def measure_on_off(run, line, shared, kernels):
    """gpuloom's last round, `shared`, against one in which sharing is off."""
    unshared = compete(run, "unshared", line.tenants, kernels)
    for figure in line.figures:
        if figure.on_off:
            without = figure.of(unshared)
            if not without:
                raise Failed("nothing was done with sharing off")
            run.results.add(f"{figure.name}_on_off", "gpuloom", "× sharing off", figure.of(shared) / without)


def keep_predictions(run, before):
    """How wrong the predictions were of the executors that have ended since the scheduler's log was `before`."""
    for _, median, most in sharing.predictions(scheduler_log(run).removeprefix(before)):
        run.results.add("sharing_prediction_error", "gpuloom", "%", median)
        run.results.add("sharing_prediction_error_p90", "gpuloom", "%", most)


def scheduler_log(run):
    log = pathlib.Path(run.state_dir, "scheduler.log")
    return log.read_text(errors="replace") if log.exists() else ""


def measure_side(run, line, side, kernels):
    """One round of one side."""
    name = line.figures[0].name
    if side != "gpuloom":  # there are no trust domains: the same figure stands beside one and beside two
        with run.part(name, side):
            keep(run, line, side, compete(run, side, line.tenants, kernels), [SUFFIXES[count] for count in line.domains])
        return
    shared = None
    for domains in line.domains:
        before = scheduler_log(run)
        with run.part(name + SUFFIXES[domains], side):
            rate = rate_percent(run, line, side, kernels) if line.of_rate else 100
            shared = compete(run, side, line.tenants, kernels, domains, line.exchange)
            keep(run, line, side, shared, [SUFFIXES[domains]], rate)
        keep_predictions(run, before)
    if shared and any(figure.on_off for figure in line.figures):
        with run.part(f"{name}_on_off", side):
            measure_on_off(run, line, shared, kernels)


def measure_line(run, line):
    names = ", ".join(figure.name for figure in line.figures)
    sides = tuple(side for side in line.sides if side != "mps" or run.mps_environment)
    rounds = len(sides) + len(line.domains) - 1 + any(figure.on_off for figure in line.figures) + line.of_rate
    round_s = rounds * (run.options.sharing_s + 2 + len(line.tenants) / 4) if run.full else 0
    for number in range(run.options.rounds):
        if run.no_time_for(f"round {number + 1} of {names}", 4 + round_s):
            return
        kernels = None
        with run.part(line.figures[0].name, "native"):
            kernels = {length: calibrate(run, length) for length in {tenant.kernel_us for tenant in line.tenants}}
        if kernels:
            for side in run.in_turn(number, sides):
                measure_side(run, line, side, kernels)


def measure(run):
    """The lines of which a row is wanted, each with all its rows."""
    for line in lines(run.full):
        if any(run.wants("sharing", row) for row in line.rows()):
            measure_line(run, line)
