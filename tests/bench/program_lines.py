# SPDX-License-Identifier: Apache-2.0
"""Lines about programs: one alone, several at once, natively, under MPS and as tenants; results compared in the same run.

All processes of a cast are started first, because importing a framework takes longer than measuring, and touch the GPU
only when prepared. Sides take turns, one at a time, in processes that stay: what changes between two rounds is which of
them work. The others of the run are idle.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import sys
import tempfile
import time

import node
from processes import Failed, end_all

HERE = pathlib.Path(__file__).resolve().parent
TORCH, JAX = [sys.executable, str(HERE / "torch_loops.py")], [sys.executable, str(HERE / "jax_loops.py")]
UNSUPPORTED = re.compile(r"^gpuloom: (.*?) is not supported", re.MULTILINE)


@dataclasses.dataclass
class Line:
    name: str
    members: tuple  # places in the cast's programs
    weighted: bool = False  # different programs: each one's rate by what it reaches natively alone


@dataclasses.dataclass
class Cast:
    programs: list  # names, one process each
    lines: list
    sides: tuple


ALONE = ("resnet50_b1", "tiny_kernels_1000", "transformer_b1", "transformer_training", "gemm_4096", "resnet50_b32",
         "jax_training")
MIXED = ("resnet50_b1", "transformer_training", "transformer_b1", "tiny_kernels_1000")


def alone(names):
    return Cast(list(names), [Line(name, (i,)) for i, name in enumerate(names)], ("native", "gpuloom"))


def together(name, programs, counts=(2, 4, 8)):
    """The first so many of these programs at the same time."""
    mixed = len(set(programs)) > 1
    return Cast(list(programs), [Line(f"{name}_x{count}", tuple(range(count)), mixed) for count in counts],
                ("native", "mps", "gpuloom"))


def command_of(name):
    return (JAX if name.startswith("jax_") else TORCH) + [name]


def rate(answer):
    """Steps a second of one that ran."""
    return answer["steps"] / answer["seconds"]


class Player:
    """One process of a cast."""

    def __init__(self, sides, side, name, command, terms=()):
        self.side, self.name = side, name
        self.check = None
        self.failed = None
        self.errors = tempfile.TemporaryFile()
        self.bench = sides.start_program(side, command, self.errors, terms)

    def answer(self, name, timeout_s):
        """The next answer; what else the program prints is not for us."""
        deadline_s = time.monotonic() + timeout_s
        while (line := self.bench.line(deadline_s)) is not None:
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            if said.get("name") == "failed":
                raise Failed(f"{self.name}, {self.side}: {said['error']}")
            if said.get("name") != name:
                raise Failed(f"{self.name}, {self.side}: answered {line}, not {name}")
            return said
        raise Failed(f"{self.name}, {self.side}: ended; {self.said_wrong()[-300:] or 'said nothing'}")

    def ask(self, words):
        try:
            self.bench.process.stdin.write(words.encode() + b"\n")
        except OSError as error:
            raise Failed(f"{self.name}, {self.side}: {error}; {self.said_wrong()[-300:]}") from error

    def said_wrong(self):
        text = os.pread(self.errors.fileno(), 1 << 20, 0)  # the process writes at its own place in the file
        return text.decode(errors="replace").strip()

    def unsupported(self):
        return sorted(set(UNSUPPORTED.findall(self.said_wrong())))

    def close_input(self):
        self.bench.close_input()

    def end(self):
        self.bench.end()
        self.errors.close()


class Stage:
    """The running processes of one cast. `run` is run.Run."""

    def __init__(self, run, cast, command=command_of):
        self.run, self.cast, self.command = run, cast, command
        self.players = {}  # (side, place) → Player
        self.broken = {}   # side → why
        self.memory_mib = {}  # side → GPU memory of each process prepared so far
        self.alone = {}  # program → steps/s natively, nobody else working

    def __enter__(self):
        wanted = sorted({place for line in self.cast.lines for place in line.members})
        for side in self.cast.sides:
            with self._may_break(side):
                for place in wanted:
                    name = self.cast.programs[place]
                    self.players[side, place] = Player(self.run.sides, side, name, self.command(name))
        for player in self.players.values():
            try:
                player.answer("imported", 120)
            except (Failed, OSError, ValueError) as error:
                player.failed = str(error)  # of its lines only
        return self

    def __exit__(self, *_):
        self.end(range(len(self.cast.programs)))

    @contextlib.contextmanager
    def _may_break(self, side):
        try:
            yield
        except (Failed, OSError, ValueError) as error:
            self.run.say(f"{side}: {error}")
            self.broken[side] = str(error)

    def end(self, places):
        ending = [self.players.pop(key) for key in list(self.players) if key[1] in places]
        end_all(ending)

    def working(self, side, line):
        return [self.players[side, place] for place in line.members]

    def prepare(self, line):
        for side in self.cast.sides:
            if side in self.broken:
                continue
            new = [player for player in self.working(side, line) if player.check is None]
            with self._may_break(side):
                for player in new:
                    if player.failed:
                        raise Failed(player.failed)
                before_mib = self.run.memory_used_mib()
                for player in new:
                    player.ask(f"prepare {self.run.options.prepare_s}")
                for player in new:
                    player.check = player.answer("ready", 120)["check"]
                if new:
                    used_mib = (self.run.memory_used_mib() - before_mib) / len(new)
                    self.memory_mib.setdefault(side, []).extend([used_mib] * len(new))

    def play(self, side, players, seconds):
        """One round: (answers, processor time of scheduler and executor during it)."""
        warm_s = self.run.options.warm_s
        start_s = time.monotonic() + 0.02
        for player in players:
            player.ask(f"run {start_s} {warm_s} {seconds}")
        time.sleep(max(0.0, start_s + warm_s - time.monotonic()))
        pids = node.node_processes(self.run.state_dir) if side == "gpuloom" else ()
        before = node.thread_seconds(pids)
        time.sleep(seconds)
        after = node.thread_seconds(pids)
        answers = [player.answer("ran", seconds + 60) for player in players]
        used = {thread: after[thread] - before.get(thread, 0.0) for thread in after}
        if pids:
            busiest = sorted(((spent / seconds, name) for (name, _), spent in used.items()), reverse=True)[:6]
            self.run.say("  busiest threads: " + ", ".join(f"{name} {share:.0%}" for share, name in busiest if share > 0.005))
        return answers, sum(used.values())

    def measure(self, line):
        """All rounds of one line."""
        run, results = self.run, self.run.results
        self.prepare(line)
        if line.weighted and "native" not in self.broken:
            with self._may_break("native"):
                for player in self.working("native", line):
                    if player.name not in self.alone:
                        answers, _ = self.play("native", [player], min(1.0, run.options.seconds))
                        self.alone[player.name] = rate(answers[0])
        for number in range(run.options.program_rounds):
            for side in run.in_turn(number, self.cast.sides):
                if side in self.broken:
                    continue
                with self._may_break(side):
                    self.keep(line, side, *self.play(side, self.working(side, line), run.options.seconds))
        self.compare(line)
        for side, why in self.broken.items():
            results.add_error(line.name, side, why)

    def keep(self, line, side, answers, node_cpu_s):
        rates = [rate(answer) for answer in answers]
        names = [self.cast.programs[place] for place in line.members]
        if line.weighted:
            unit, value = "× one alone", sum(rate / self.alone[name] for rate, name in zip(rates, names))
        else:
            unit, value = "steps/s", sum(rates)
        steps = sum(answer["steps"] for answer in answers)
        results = self.run.results
        results.add(line.name, side, unit, value)
        waits = sum(answer["waits"] for answer in answers) / steps
        self.run.say(f"{line.name}: {side}: {value:.4g} {unit}; a step's thread waits {waits:.1f}")
        results.add_detail(line.name, side, "rates", rates)
        for key in ("p50_ms", "p99_ms", "issue_ms"):
            results.add_detail(line.name, side, key, [answer[key] for answer in answers])
        tenant_cpu_ms = sum(answer["cpu_s"] for answer in answers) / steps * 1e3
        results.add_detail(line.name, side, "tenant_cpu_ms", [tenant_cpu_ms])
        node_cpu_ms = node_cpu_s / steps * 1e3
        if side == "gpuloom":
            results.add_detail(line.name, side, "node_cpu_ms", [node_cpu_ms])
        if len(line.members) == 1:
            results.add(f"{line.name}_cpu", side, "ms of processors a step", tenant_cpu_ms + node_cpu_ms)

    def compare(self, line):
        """Every process once more, on each side: is everything as it was natively before?"""
        for side in self.cast.sides:
            if side in self.broken:
                continue
            with self._may_break(side):
                players = self.working(side, line)
                for player in players:
                    player.ask("check")
                now = [player.answer("checked", 60)["check"] for player in players]
                if "native" in self.broken:
                    continue
                expected = [player.check for player in self.working("native", line)]
                same = now == expected and [player.check for player in players] == expected
                self.run.results.set_fact(line.name, side, "results", "same" if same else "**different**")
                memory_mib = self.memory_mib[side][-len(players):]
                self.run.results.add_detail(line.name, side, "memory_mib", [sum(memory_mib) / len(memory_mib)])
                if not same:
                    raise Failed(f"results differ: {now} natively {expected}")
                unsupported = sorted({call for player in players for call in player.unsupported()})
                if unsupported:
                    self.run.say(f"  not supported: {', '.join(unsupported)}")


def measure(run, cast, command=command_of):
    """The lines of one cast that are wanted and for which there is time."""
    group = "programs" if len(cast.lines[0].members) == 1 else "mixes"
    cast.lines = [line for line in cast.lines if run.wants(group, line.name)]
    cast.sides = tuple(side for side in cast.sides if side != "mps" or run.mps_environment)
    starting_s = 10 + len(cast.programs) * len(cast.sides) / 2  # importing, many at a time
    if not cast.lines or run.no_time_for(", ".join(line.name for line in cast.lines), starting_s):
        return
    with Stage(run, cast, command) as stage:
        for i, line in enumerate(cast.lines):
            rounds = run.options.program_rounds * len(cast.sides)
            if run.no_time_for(line.name, 8 + rounds * (run.options.seconds + run.options.warm_s + 0.1)):
                continue
            run.say(line.name)
            stage.measure(line)
            later = {place for other in cast.lines[i + 1:] for place in other.members}
            stage.end(set(line.members) - later)
            if len(line.members) == 1:
                stage.broken.clear()  # it broke with this program
