# SPDX-License-Identifier: Apache-2.0
"""Benchmark processes, native or as tenants: starting them, waiting for what they say, ending them."""

import json
import os
import select
import subprocess
import time


class Failed(Exception):
    """A process that did not do what it was started for; the text says which and what."""


class Sides:
    """How a program is started on each side: command line and environment. "mps" is native, as a client of MPS;
    "unshared" is gpuloom in which everybody submits what they like, with a scheduler of its own, so that both may be there."""

    def __init__(self, bench, library, gpuloom, run_arguments, state_dir, gpu):
        self.state_dirs = {"gpuloom": str(state_dir), "unshared": f"{state_dir}-unshared"}
        tenants = {side: [gpuloom, "run", "--state-dir", folder, *run_arguments, "--"] for side, folder in self.state_dirs.items()}
        self.prefixes = {"native": [], "mps": [], **tenants}
        self.benches = {"native": [bench, "--library", library], "mps": [bench, "--library", library],
                        "gpuloom": [bench], "unshared": [bench]}
        native = dict(os.environ)
        if gpu is not None:
            native["CUDA_VISIBLE_DEVICES"] = str(gpu)
        self.environments = {"native": native, "mps": native, "gpuloom": dict(os.environ),
                             "unshared": {**os.environ, "GPULOOM_EXECUTOR_SHARING": "off"}}

    def use_mps(self, environment):
        self.environments["mps"] = {**self.environments["native"], **environment}

    def start(self, side, *arguments, terms=()):
        return self.start_program(side, self.benches[side] + list(arguments), terms=terms)

    def start_program(self, side, command, errors=None, terms=()):
        """`terms`: options of gpuloom run, for this one; nothing natively, where there are no terms."""
        prefix = self.prefixes[side]
        if prefix:
            prefix = [*prefix[:-1], *terms, "--"]
        return Bench(side, prefix + command, self.environments[side], errors)


class Bench:
    """One running benchmark process. Closing its standard input ends one that holds."""

    def __init__(self, side, command, environment, errors=None):
        self.what = f"{side}: {' '.join(command)}"
        self.started_s = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.rest = b""
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=errors, bufsize=0)

    @property
    def pid(self):
        return self.process.pid

    def line(self, deadline_s):
        """The next line, or None at the end."""
        while b"\n" not in self.rest:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not select.select([self.process.stdout], [], [], left_s)[0]:
                raise Failed(f"{self.what}: said nothing more in time")
            more = self.process.stdout.read(65536)
            if not more:
                return None
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def wait_ready(self, timeout_s=60):
        """What it says when it is ready."""
        line = self.line(time.monotonic() + timeout_s)
        said = json.loads(line) if line else {}
        if said.get("name") != "ready" or "error" in said:
            raise Failed(f"{self.what}: {line or 'ended before it was ready'}")
        return said

    def go(self, words="go"):
        self.process.stdin.write(words.encode() + b"\n")

    def lines(self, timeout_s):
        """Everything it still says, line by line as JSON, until it ends."""
        deadline_s = time.monotonic() + timeout_s
        while (line := self.line(deadline_s)) is not None:
            yield json.loads(line)
        self.end(timeout_s=10)

    def close_input(self):
        self.process.stdin.close()

    def end(self, timeout_s=30):
        """Lets it end, by force if need be; never raises."""
        for stream in (self.process.stdin, self.process.stdout):
            try:
                stream.close()
            except OSError:
                pass
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def end_all(benches, **how):
    """All at once: a framework takes its time to end. `how` is for their end()."""
    for bench in benches:
        bench.close_input()
    for bench in benches:
        bench.end(**how)


class Holders:
    """`count` idle processes, ready, for the length of a with-statement."""

    def __init__(self, sides, side, count, seconds):
        self.sides, self.side, self.count, self.seconds = sides, side, count, seconds
        self.held = []

    def __enter__(self):
        try:
            for _ in range(self.count):
                self.held.append(self.sides.start(self.side, "--hold", str(self.seconds)))
                self.held[-1].wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return [bench.pid for bench in self.held]

    def __exit__(self, *_):
        end_all(self.held)
