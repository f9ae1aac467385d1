"""What a benchmark reads off the machine: its description, GPU memory in use, processor time of processes."""

import os
import pathlib
import subprocess
import time

PROC = pathlib.Path("/proc")
NODE_PROCESSES = ("gpuloom-scheduler", "gpuloom-executor")


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


def processes():
    """pid → name of every process; the kernel cuts names at 15 bytes."""
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = (entry / "comm").read_text().strip()
            except OSError:
                continue  # ended meanwhile
    return found


def node_processes(known):
    """pids of schedulers and executors that are not in `known`."""
    short = {name[:15] for name in NODE_PROCESSES}
    return {pid for pid, name in processes().items() if name in short and pid not in known}


def processor_seconds(pids):
    """User and system time of these processes, all threads; those that ended count nothing."""
    ticks = 0
    for pid in pids:
        try:
            stat = (PROC / str(pid) / "stat").read_text()
        except OSError:
            continue
        fields = stat.rsplit(")", 1)[1].split()  # the name before may hold spaces
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def descendants(pid):
    """pid and everything below it."""
    parents = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more
