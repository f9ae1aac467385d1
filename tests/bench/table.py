# SPDX-License-Identifier: Apache-2.0
"""The benchmark's tables: lines in order, figures of each side, whether goals are met. Pure: no process, no clock."""

import statistics

from goals import goal_of

SIDES = {"native": "native", "mps": "MPS", "gpuloom": "gpuloom"}
# Of a program's processes: (key, heading). A figure of several processes is the range from the best to the worst.
DETAILS = [("rates", "each, steps/s"), ("p50_ms", "p50, ms"), ("p99_ms", "p99, ms"), ("issue_ms", "issued after, ms"),
           ("tenant_cpu_ms", "processor time a step, program, ms"), ("node_cpu_ms", "… executor and scheduler, ms"),
           ("memory_mib", "GPU memory a process, MiB")]


class Results:
    """Medians of rounds by line and side ("native", "mps", "gpuloom"), in the order in which lines first came."""

    def __init__(self):
        self.units = {}  # line → unit
        self.values = {}  # (line, side) → list of values, one for each round
        self.errors = {}  # (line, side) → first error
        self.details = {}  # (line, side) → key → rounds, each a list with one value for each process
        self.facts = {}  # (line, side) → key → text
        self.notes = []  # sentences about the run: what was left out, what is not on this machine

    def add(self, name, side, unit, value):
        self.units.setdefault(name, unit)
        self.values.setdefault((name, side), []).append(value)

    def add_error(self, name, side, error):
        self.units.setdefault(name, "")
        self.errors.setdefault((name, side), error)

    def add_detail(self, name, side, key, values):
        self.details.setdefault((name, side), {}).setdefault(key, []).append(values)

    def set_fact(self, name, side, key, text):
        self.facts.setdefault((name, side), {})[key] = text

    def add_note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def median(self, name, side):
        values = self.values.get((name, side))
        return statistics.median(values) if values else None

    def failed(self):
        return bool(self.errors)


def number(value):
    """Four digits, no exponent: 54.31, 0.182, 143000."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    text = f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
    return text if "e" not in text else f"{value:.6f}".rstrip("0")


def spread(values):
    """Smallest to largest."""
    return f"{number(min(values))} … {number(max(values))}" if values else "–"


def ratio(ours, other):
    return f"{ours / other:.2f}" if other and ours is not None else "–"


def row(results, name, judged, with_mps):
    native, mps, ours = (results.median(name, side) for side in SIDES)
    goal = goal_of(name)
    met = "–"
    if goal and judged and ours is not None:
        met = "yes" if goal.judge(native, ours, mps) else "**no**"
    if (name, "gpuloom") in results.errors:
        met = "failed"
    cells = [name, results.units[name], number(native), number(ours), ratio(ours, native)]
    if with_mps:
        cells += [number(mps), ratio(ours, mps)]
    cells += [spread(results.values.get((name, side))) for side in ("native", "gpuloom")]
    if with_mps:
        cells.append(spread(results.values.get((name, "mps"))))
    cells += [goal.words if goal else "–", met]
    return "| " + " | ".join(cells) + " |"


def over_processes(rounds):
    """The median over the rounds of each process: one number, or the range over the processes."""
    each = [statistics.median(values) for values in zip(*rounds)]
    low, high = number(min(each)), number(max(each))
    return low if low == high else f"{low} … {high}"


def detail_rows(results):
    out = ["| line | side | " + " | ".join(heading for _, heading in DETAILS) + " | results |",
           "| --- | --- |" + " ---: |" * len(DETAILS) + " --- |"]
    for name in results.units:
        for side, shown in SIDES.items():
            details = results.details.get((name, side))
            if details is None:
                continue
            cells = [over_processes(details[key]) if key in details else "–" for key, _ in DETAILS]
            cells.append(results.facts.get((name, side), {}).get("results", "**not compared**"))
            out.append(f"| {name} | {shown} | " + " | ".join(cells) + " |")
    return out


def head(with_mps):
    cells = ["line", "unit", "native", "gpuloom", "gpuloom / native"]
    if with_mps:
        cells += ["MPS", "gpuloom / MPS"]
    cells += ["native, rounds", "gpuloom, rounds"] + (["MPS, rounds"] if with_mps else []) + ["goal", "met"]
    text = ("line", "native, rounds", "gpuloom, rounds", "MPS, rounds", "unit", "goal", "met")
    return ["| " + " | ".join(cells) + " |", "| " + " | ".join("---" if c in text else "---:" for c in cells) + " |"]


def section(results, names, judged):
    with_mps = any((name, "mps") in results.values for name in names)
    return head(with_mps) + [row(results, name, judged, with_mps) for name in names]


def markdown(facts, results, judged=True):
    """All tables. `judged` false: goals are shown and not judged, for software drivers and debug builds."""
    out = [f"- {what}: {value}" for what, value in facts] + [f"- {note}" for note in results.notes]
    programs = [name for name in results.units if any((name, side) in results.details for side in SIDES)]
    calls = [name for name in results.units if name not in programs]
    for names in (programs, calls):
        if names:
            out += ["", *section(results, names, judged)]
    if programs:
        out += ["", *detail_rows(results)]
    if results.errors:
        out += ["", "Failed:", ""]
        out += [f"- {name}, {side}: {error}" for (name, side), error in results.errors.items()]
    return "\n".join(out) + "\n"
