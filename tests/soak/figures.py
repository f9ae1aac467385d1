# SPDX-License-Identifier: Apache-2.0
"""What a node's processes and folders hold at one moment, and whether it stays that way."""

import collections
import dataclasses
import os
import pathlib
import re
import statistics
import time

# Between lives of rest: what an allocator keeps, and threads that gRPC makes as it likes.
ALLOWED = {"memory_kib": 6144, "descriptors": 4, "threads": 6}
# An agent knows the pods of its last five minutes (Ledger::kLinger): until then it holds more and more of them.
FILLS_SECONDS = 300


@dataclasses.dataclass
class Process:
    pid: int
    name: str
    memory_kib: int
    descriptors: int
    threads: int
    age_seconds: float


def Age(stat):
    """Seconds since the process began whose /proc/PID/stat this is."""
    ticks = int(stat.rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def Look(pid, name):
    """None if it has ended meanwhile."""
    proc = pathlib.Path(f"/proc/{pid}")
    try:
        status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines() if ":\t" in line)
        rollup = (proc / "smaps_rollup").read_text()
        # What is the process's own: pages that it shares with its children or files are nobody's growth.
        private = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(("Private_Clean", "Private_Dirty")))
        age = Age((proc / "stat").read_text())
        return Process(pid, name, private, len(os.listdir(proc / "fd")), int(status["Threads"]), age)
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


def Settled(looks):
    """Without the first one, and without the time in which its tables fill, if the process was looked at for as long again."""
    settled = [process for _, process in looks if process.age_seconds > FILLS_SECONDS]
    if settled and settled[-1].age_seconds > 2 * FILLS_SECONDS:
        return settled
    return [process for _, process in looks[1:]]


def Growth(looks, what):
    """Of the median of the last third over that of the first."""
    values = [getattr(process, what) for process in Settled(looks)]
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
