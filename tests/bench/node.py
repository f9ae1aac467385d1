# SPDX-License-Identifier: Apache-2.0
"""What a benchmark reads off the machine: its description, GPU memory in use, processor time of processes."""

import os
import pathlib
import subprocess
import time

PROC = pathlib.Path("/proc")


def gpu_query(fields, gpu):
    """nvidia-smi's values for one GPU, or None without a GPU."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-i", str(gpu), f"--query-gpu={fields}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return [value.strip() for value in done.stdout.strip().split(",")]


def memory_used_mib(gpu):
    return int(gpu_query("memory.used", gpu)[0])


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} logical processors"
    return f"unknown, {os.cpu_count()} logical processors"


def describe(gpu, softgpu):
    """(what, value) pairs that stand above every table."""
    facts = [("Date", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())), ("Kernel", os.uname().release),
             ("Processor", processor())]
    card = None if softgpu else gpu_query("name,driver_version", gpu)
    facts.append(("GPU", card[0] if card else "none: the software driver"))
    if card:
        facts.append(("NVIDIA driver", card[1]))
    return facts


def stat_fields(pid):
    """Fields of /proc/PID/stat from the third on, or None for a process that has ended."""
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return stat.rsplit(")", 1)[1].split()  # the name before may hold anything


def all_pids():
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def alive(pid):
    fields = stat_fields(pid)
    return fields is not None and fields[0] not in "ZX"


def words(pid):
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def node_processes(state_dir):
    """pids of the scheduler that serves `state_dir` and of its executors; other schedulers may be at work beside it."""
    schedulers = {pid for pid in all_pids()
                  if (said := words(pid)) and said[0].endswith("/gpuloom-scheduler") and state_dir in said}
    return {pid for scheduler in schedulers for pid in descendants(scheduler) if alive(pid)}


def processor_seconds(pids):
    """User and system time of these processes, all threads; those that ended count nothing."""
    ticks = 0
    for pid in pids:
        fields = stat_fields(pid)
        if fields is not None:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def thread_seconds(pids):
    """(program, thread id) → user and system time of each thread of these processes."""
    seconds = {}
    for pid in pids:
        try:
            threads = [int(entry.name) for entry in (PROC / str(pid) / "task").iterdir()]
        except OSError:
            continue
        name = os.path.basename(words(pid)[0] if words(pid) else "")
        for thread in threads:
            fields = stat_fields(f"{pid}/task/{thread}")
            if fields is not None:
                seconds[name, thread] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def descendants(pid):
    """pid and everything below it."""
    parents = {child: int(fields[1]) for child in all_pids() if (fields := stat_fields(child)) is not None}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found
