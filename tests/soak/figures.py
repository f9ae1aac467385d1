# SPDX-License-Identifier: Apache-2.0
"""What a node's processes and folders hold at one moment, and whether it stays that way."""

import collections
import dataclasses
import os
import pathlib
import re
import statistics

# Between lives of rest: what an allocator keeps, and threads that gRPC makes as it likes.
ALLOWED = {"memory_kib": 6144, "descriptors": 4, "threads": 6}


@dataclasses.dataclass
class Process:
    pid: int
    name: str
    memory_kib: int
    descriptors: int
    threads: int


def Look(pid, name):
    """None if it has ended meanwhile."""
    proc = pathlib.Path(f"/proc/{pid}")
    try:
        status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)
        rollup = (proc / "smaps_rollup").read_text()
        # What is the process's own: pages that it shares with its children or files are nobody's growth.
        private = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(("Private_Clean", "Private_Dirty")))
        return Process(pid, name, private, len(os.listdir(proc / "fd")), int(status["Threads"]))
    except (OSError, KeyError):
        return None


# What an agent's first handover leaves, locks, and its first refusal.
KEPT = {"agent.leaving", "agent.next", "refusals.json"}


def NewFiles(first, last):
    """Of two lists of files those that the second has more, as text. Names that are chosen at random count as one."""
    def Counted(names):
        return collections.Counter(re.sub(r"[0-9a-f]{6,}", "…", name) for name in names if name not in KEPT)
    more = Counted(last) - Counted(first)
    return [f"{count} more of the file {name} than after the first round" for name, count in sorted(more.items())]


@dataclasses.dataclass
class Life:
    """One process, looked at whenever the node rests."""
    name: str
    pid: int
    looks: list = dataclasses.field(default_factory=list)  # (round, Process)


def Growth(looks, what):
    """Of the median of the last third over that of the first, without the first look of all, in which it still warms up."""
    values = [getattr(process, what) for _, process in looks[1:]]
    third = max(1, len(values) // 3)
    return statistics.median_low(values[-third:]) - statistics.median_low(values[:third])


def Judge(lives, least_looks):
    """What grows, as text; each process that lived long enough for that to be seen."""
    growing = []
    for life in lives:
        if len(life.looks) < least_looks:
            continue
        for what, allowed in ALLOWED.items():
            growth = Growth(life.looks, what)
            if growth > allowed:
                growing.append(f"{life.name} (pid {life.pid}) has {growth:.0f} {what} more after {len(life.looks)} rounds than in its first")
    return growing
