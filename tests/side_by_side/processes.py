# SPDX-License-Identifier: Apache-2.0
"""One program of one side: started in a session of its own, watched, ended with everything it started."""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

PROC = pathlib.Path("/proc")
# The node's own processes: they hold the GPU, which a tenant must not.
NODE = ("gpuloom-scheduler", "gpuloom-executor")
# The driver's own files carry its version: libcuda.so.580.159.04.
DRIVER_LIBRARY = re.compile(r"libcuda\.so\.\d+\.\d+")
UNSUPPORTED = re.compile(r"^gpuloom: (.*?) is not supported", re.MULTILINE)


@dataclasses.dataclass
class Ran:
    status: object         # exit status, negative for a signal, or "time limit"
    output: str
    errors: str
    seconds: float
    devices: list          # /dev/nvidia* that a process of the program had open
    libraries: list        # NVIDIA's libcuda, where a process of the program had it mapped

    def unsupported(self):
        return sorted(set(UNSUPPORTED.findall(self.errors)))


def _parents():
    parents = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                pass
    return parents


def _program(pid):
    try:
        return os.path.basename((PROC / str(pid) / "cmdline").read_bytes().split(b"\0", 1)[0].decode(errors="replace"))
    except OSError:
        return ""


def tenants_below(pid):
    """pid and its descendants, without the node's processes and what those started."""
    parents = _parents()
    children = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        if _program(one) in NODE:
            continue
        found.append(one)
        waiting.extend(children.get(one, []))
    return found


def traces(pid):
    """(/dev/nvidia* open, NVIDIA's libcuda mapped) of one process; what has ended has none."""
    devices, libraries = set(), set()
    try:
        for entry in (PROC / str(pid) / "fd").iterdir():
            try:
                target = os.readlink(entry)
            except OSError:
                continue
            if target.startswith("/dev/nvidia"):
                devices.add(target)
        for match in DRIVER_LIBRARY.finditer((PROC / str(pid) / "maps").read_text(errors="replace")):
            libraries.add(match.group())
    except OSError:
        pass
    return devices, libraries


class _Watch(threading.Thread):
    """Looks at a program's processes again and again while it runs."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.devices, self.libraries = pid, set(), set()
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(0.1):
            for pid in tenants_below(self.pid):
                devices, libraries = traces(pid)
                self.devices |= devices
                self.libraries |= libraries


def _end_group(process, patience_s):
    """Politely, then not: the program and what it started that stayed in its session's first group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(patience_s)
            if number == signal.SIGTERM:
                continue  # what it left behind ends with the second signal
        except subprocess.TimeoutExpired:
            pass
    process.wait()


def run(command, environment, limit_s, watch):
    """Never raises for what the program does; a command that cannot start has status 127."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        started_s = time.monotonic()
        try:
            process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                       start_new_session=True)
        except OSError as error:
            return Ran(127, "", str(error), 0.0, [], [])
        watcher = _Watch(process.pid) if watch else None
        if watcher:
            watcher.start()
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = "time limit"
        seconds = time.monotonic() - started_s
        _end_group(process, 3)
        if watcher:
            watcher.ended.set()
            watcher.join()
        texts = []
        for stream in (output, errors):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
        return Ran(status, *texts, seconds, sorted(watcher.devices) if watcher else [],
                   sorted(watcher.libraries) if watcher else [])
