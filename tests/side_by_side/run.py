#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs programs natively and through gpuloom, one after the other, and shows both side by side.

  run.py --out DIR                                   from a pack (tests/bench/pack.sh): everything is found from here
  run.py --out DIR --only 'programs/*' --only '*graphs*' --budget 300
  run.py --out DIR --build build/dev --softgpu       the CUDA C++ programs of a build tree on the software driver

An entry is one program; a framework's program has several cases. Equal means: the same exit status and the same
output, or for cases the same status and value. A tenant that holds a /dev/nvidia* or has NVIDIA's libcuda mapped
fails. DIR gets report.md, results.json and each program's output. Exit status 1 when something differs, was not run
for lack of time, or nothing was selected.
"""

import argparse
import concurrent.futures
import dataclasses
import fnmatch
import json
import os
import pathlib
import sys
import tempfile
import threading
import time

import compare
import entries
import processes

HERE = pathlib.Path(__file__).resolve().parent


class Places:
    """Where the programs lie: in a pack beside this folder, or in a build tree and the source."""

    def __init__(self, build):
        root = HERE.parent.parent
        self.frameworks = HERE.parent / "frameworks"
        self.accepted = HERE.parent / "golden/wrong_calls_accepted.txt"
        if build:
            build = pathlib.Path(build).resolve()
            self.gpuloom, self.programs = build / "bin/gpuloom", build / "tests/programs"
            self.wrong_calls, self.softgpu = build / "tests/gpuloom-wrong-calls", build / "lib/softgpu"
        else:
            self.gpuloom, self.programs = root / "bin/gpuloom", HERE.parent / "programs"
            self.wrong_calls, self.softgpu = HERE.parent / "gpuloom-wrong-calls", root / "lib/softgpu"


class Sides:
    """How a program is started on each side."""

    def __init__(self, options, places, state_dir):
        self.options, self.places, self.state_dir = options, places, state_dir

    def command(self, entry, side):
        if side == "native":
            return entry.command
        where = ["--softgpu"] if self.options.softgpu else ["--gpu", str(self.options.gpu)]
        quota = entry.run_arguments or ["--slots", str(self.options.slots or max(1, 10 // self.options.jobs))]
        domain = "".join(c if c.isalnum() else "-" for c in entry.name)
        return [str(self.options.gpuloom or self.places.gpuloom), "run", *where, *quota, "--domain", domain,
                "--state-dir", self.state_dir, "--", *entry.command]

    def environment(self, entry, side):
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **entry.environment}
        if side == "native":
            if self.options.softgpu:
                environment["LD_LIBRARY_PATH"] = str(self.places.softgpu)
            else:
                environment["CUDA_VISIBLE_DEVICES"] = str(self.options.gpu)
        return environment


class Run:
    def __init__(self, options, chosen, sides, out):
        self.options, self.chosen, self.sides, self.out = options, chosen, sides, out
        self.started_s = time.monotonic()
        self.rows, self.not_run = [], []
        self.lock = threading.Lock()

    def left_s(self):
        return self.options.budget - (time.monotonic() - self.started_s)

    def one_side(self, entry, side, label):
        limit_s = min(entry.limit_s * self.options.patience, max(self.left_s(), 1))
        # The runs with a tenant are watched: what it has open, what it has mapped.
        ran = processes.run(self.sides.command(entry, side), self.sides.environment(entry, side), limit_s,
                            watch=side == "gpuloom")
        folder = self.out / entry.name.replace("/", "_")
        folder.mkdir(exist_ok=True)
        (folder / f"{label}.out").write_text(ran.output)
        (folder / f"{label}.err").write_text(ran.errors + f"\n[{ran.status}, {ran.seconds:.2f} s]\n")
        return ran

    def one_entry(self, entry):
        if self.left_s() < 2:
            with self.lock:
                self.not_run.append(entry.name)
            return
        native = self.one_side(entry, "native", "native")
        gpuloom = self.one_side(entry, "gpuloom", "gpuloom")
        rows = compare.compare(entry, native, gpuloom)
        if self.options.native_twice and not all(row.good() for row in rows) and self.left_s() > native.seconds + 1:
            rows = compare.compare(entry, native, gpuloom, self.one_side(entry, "native", "native_again"))
        with self.lock:
            self.rows.append((entry.name, rows))
            whole, bad = rows[0], [row for row in rows if not row.good()]
            print(f"{'DIFFERS' if bad else 'equal  '} {entry.name}  native {whole.native_s:.1f} s, gpuloom "
                  f"{whole.gpuloom_s:.1f} s" + (f", {len(rows) - 1} cases" if len(rows) > 1 else ""), flush=True)
            for row in bad[:20]:
                print(f"        {row.case or 'the program'}: {row.why}", flush=True)
            self.write()

    def all_rows(self):
        order = {entry.name: i for i, entry in enumerate(self.chosen)}
        return [row for _, rows in sorted(self.rows, key=lambda pair: order[pair[0]]) for row in rows]

    def summary(self):
        rows = self.all_rows()
        count = {kind: sum(row.result == kind for row in rows)
                 for kind in (compare.EQUAL, compare.DIFFERS, compare.SKIPPED, compare.UNSTEADY)}
        return (f"{count[compare.EQUAL]} equal, {count[compare.DIFFERS]} different, {count[compare.SKIPPED]} skipped, "
                f"{count[compare.UNSTEADY]} unsteady natively, {len(self.not_run)} programs not run")

    def write(self):
        """After each program, so that a run that is cut off leaves what it has."""
        rows = self.all_rows()
        lines = ["# Programs natively and through gpuloom", "", self.summary(), "",
                 "| program | case | equal | native s | gpuloom s | unsupported calls met | |",
                 "| --- | --- | --- | ---: | ---: | --- | --- |"]
        for row in rows:
            words = [row.entry, row.case, row.result, f"{row.native_s:.2f}", f"{row.gpuloom_s:.2f}",
                     ", ".join(row.unsupported), row.why]
            lines.append("| " + " | ".join(word.replace("|", "\\|") for word in words) + " |")
        lines += [f"| {name} | | not run: no time was left | | | | |" for name in self.not_run]
        (self.out / "report.md").write_text("\n".join(lines) + "\n")
        (self.out / "results.json").write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=1))

    def run(self):
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            for done in [pool.submit(self.one_entry, entry) for entry in self.chosen if not entry.alone]:
                done.result()
        for entry in self.chosen:
            if entry.alone:
                self.one_entry(entry)
        self.write()
        print(self.summary())
        return all(row.good() for row in self.all_rows()) and not self.not_run


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder for the report and all output")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB", help="entries to run; may be given again")
    parser.add_argument("--skip", action="append", default=[], metavar="GLOB", help="entries not to run")
    parser.add_argument("--list", action="store_true", help="only print the entries' names")
    parser.add_argument("--budget", type=float, default=3600, metavar="SECONDS", help="for everything (default: %(default)s)")
    parser.add_argument("--patience", type=float, default=1, metavar="FACTOR", help="multiplies every program's time limit")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time (default: %(default)s)")
    parser.add_argument("--native-twice", action="store_true", help="where something differs, run natively once more")
    parser.add_argument("--build", help="a build tree, instead of the pack that this file lies in")
    parser.add_argument("--softgpu", action="store_true", help="the software driver on both sides; no frameworks")
    parser.add_argument("--gpuloom", help="the gpuloom program to use")
    parser.add_argument("--gpu", type=int, default=0, help="index of the GPU (default: 0)")
    parser.add_argument("--slots", type=int, help="slots of a tenant without a quota of its own (default: 10, shared among jobs)")
    return parser.parse_args(arguments)


def choose(options, places):
    found = [*entries.program_entries(places.programs),
             *entries.wrong_call_entries(places.wrong_calls, places.accepted)]
    if not options.softgpu:
        found += entries.framework_entries(places.frameworks)
    return [entry for entry in found
            if (not options.only or any(fnmatch.fnmatchcase(entry.name, glob) for glob in options.only))
            and not any(fnmatch.fnmatchcase(entry.name, glob) for glob in options.skip)]


def main(arguments):
    options = parse(arguments)
    places = Places(options.build)
    chosen = choose(options, places)
    if options.list:
        print("\n".join(entry.name for entry in chosen))
        return 0
    if not chosen:
        print("side by side: nothing is selected", file=sys.stderr)
        return 1
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpuloom-side-", ignore_cleanup_errors=True) as state_dir:
        good = Run(options, chosen, Sides(options, places, state_dir), out).run()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
