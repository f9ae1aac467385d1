"""The benchmark's table: lines in order, goals, and how they are judged. Pure: no process, no clock."""

import statistics

# Line → (goal in words, judge(native median, gpuloom median) → met). A line without a goal is reported only.
GOALS = {
    "launch_call": ("≤ 300 ns", lambda native, ours: ours <= 300),
    "launch_sync": ("≤ native + 2 µs", lambda native, ours: native is not None and ours <= native + 2000),
    "copy_h2d_pinned": ("≥ 95 % of native", lambda native, ours: native is not None and ours >= 0.95 * native),
    "copy_d2h_pinned": ("≥ 95 % of native", lambda native, ours: native is not None and ours >= 0.95 * native),
    "memory_next_tenant": ("≤ 20 MiB", lambda native, ours: ours <= 20),
    "idle_cpu_node": ("< 1 % of a core", lambda native, ours: ours < 1),
}


def goal_of(name):
    """Exact name, or the goal of a family of lines: copy_h2d_pinned for copy_h2d_pinned_1MiB."""
    if name in GOALS:
        return GOALS[name]
    for family in ("copy_h2d_pinned", "copy_d2h_pinned"):
        if name.startswith(family + "_"):
            return GOALS[family]
    return None


class Results:
    """Medians of rounds by line and side ("native", "gpuloom"), in the order in which lines first came."""

    def __init__(self):
        self.units = {}  # line → unit
        self.values = {}  # (line, side) → list of values, one for each round
        self.errors = {}  # (line, side) → first error

    def add(self, name, side, unit, value):
        self.units.setdefault(name, unit)
        self.values.setdefault((name, side), []).append(value)

    def add_error(self, name, side, error):
        self.units.setdefault(name, "")
        self.errors.setdefault((name, side), error)

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
    """Smallest to largest round."""
    return f"{number(min(values))} … {number(max(values))}" if values else "–"


def row(results, name, judged):
    native, ours = results.median(name, "native"), results.median(name, "gpuloom")
    goal = goal_of(name)
    met = "–"
    if goal and judged and ours is not None:
        met = "yes" if goal[1](native, ours) else "**no**"
    if (name, "gpuloom") in results.errors:
        met = "failed"
    ratio = f"{ours / native:.2f}" if native and ours is not None else "–"
    return (f"| {name} | {results.units[name]} | {number(native)} | {number(ours)} | {ratio} "
            f"| {spread(results.values.get((name, 'native')))} | {spread(results.values.get((name, 'gpuloom')))} "
            f"| {goal[0] if goal else '–'} | {met} |")


def markdown(facts, results, judged=True):
    """The whole table. `judged` false: goals are shown and not judged, for software drivers and debug builds."""
    out = [f"- {what}: {value}" for what, value in facts]
    out += ["", "| line | unit | native | gpuloom | gpuloom / native | native, rounds | gpuloom, rounds | goal | met |",
            "| --- | --- | ---: | ---: | ---: | --- | --- | --- | --- |"]
    out += [row(results, name, judged) for name in results.units]
    if results.errors:
        out += ["", "Failed:", ""]
        out += [f"- {name}, {side}: {error}" for (name, side), error in results.errors.items()]
    return "\n".join(out) + "\n"
