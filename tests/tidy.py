#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy (.clang-tidy) over the product's sources, as a clang build compiles them.

usage: tidy.py [BUILD [FILE …]]     BUILD: build/asan (default), built; FILE: these sources only

A source is looked at again when it, a header that it includes, its command line, .clang-tidy or clang-tidy itself has
changed: what was found clean is kept in $XDG_CACHE_HOME/gpuloom-tidy (~/.cache). Exit status 0: nothing was found.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "gpuloom-tidy"
PRODUCT = re.compile(r"^(agent|proto|shim)/.*\.cc$")
TOGETHER = re.compile(r"^build/[^/]+/.*_together_\d+\.cc$")  # gpuloom_compile_together in deploy/build.cmake
INCLUDED = re.compile(r'^#include "(.*)"$', re.MULTILINE)
NOT_PRODUCT = re.compile(r"_test\.cc$|_fuzz\.cc$|/testing/|/testdata/|_fixture\.cc$")


def commands(build):
    """What this build compiles of the product: into what and how, without what differs between checkouts, and which sources
    that is, since several are compiled together."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        name = os.path.relpath(os.path.join(entry["directory"], entry["file"]), ROOT)
        sources = INCLUDED.findall((ROOT / name).read_text()) if TOGETHER.search(name) else [name]
        if all(PRODUCT.search(source) and not NOT_PRODUCT.search(source) for source in sources):
            output = entry["command"].split(" -o ")[1].split(" ")[0]
            found.setdefault(name, (output, entry["command"].replace(str(ROOT), "."), sources))
    return found


def dependencies(build):
    """By object file: what it was made of, as ninja has noted down."""
    output = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    found = {}
    for block in output.split("\n\n"):
        lines = block.strip().splitlines()
        if lines and lines[0].endswith("(VALID)"):
            found[lines[0].split(":")[0]] = [os.path.normpath(os.path.join(build, line.strip())) for line in lines[1:]]
    return found


class Keys:
    def __init__(self, build):
        self.dependencies = dependencies(build)
        self.files = {}
        version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
        self.common = version + (ROOT / ".clang-tidy").read_bytes()

    def of_file(self, path):
        if path not in self.files:
            self.files[path] = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
        return self.files[path]

    def of(self, output, command, _sources):
        """None: nobody knows what the source includes."""
        if output not in self.dependencies:
            return None
        key = hashlib.sha256(self.common + command.encode())
        for path in self.dependencies[output]:
            key.update(self.of_file(path).encode())
        return key.hexdigest()


def look(build, name):
    done = subprocess.run(["clang-tidy", "-p", build, "--quiet", name], cwd=ROOT, capture_output=True, text=True, check=False)
    found = [line.replace(f"{ROOT}/", "") for line in done.stdout.splitlines()]
    if done.returncode == 0:
        return []
    return found or done.stderr.splitlines() or [f"{name}: clang-tidy ended with {done.returncode}"]


def main():
    arguments = sys.argv[1:]
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    build = pathlib.Path(arguments[0] if arguments else ROOT / "build/asan").resolve()
    if not (build / "compile_commands.json").exists():
        print(f"tidy: {build} is not built: cmake --preset asan && cmake --build --preset asan", file=sys.stderr)
        return 2
    units = commands(build)
    unit_of = {source: name for name, (_, _, sources) in units.items() for source in sources}
    unknown = [name for name in arguments[1:] if name not in unit_of]
    if unknown:
        print(f"tidy: {unknown[0]} is no source of the product that {build.name} compiles", file=sys.stderr)
        return 2
    names = sorted({unit_of[source] for source in arguments[1:]} or units)
    keys = Keys(build)
    CACHE.mkdir(parents=True, exist_ok=True)
    key_of = {name: keys.of(*units[name]) for name in names}
    stale = [name for name in names if key_of[name] is None or not (CACHE / key_of[name]).exists()]
    wrong = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, found in zip(stale, pool.map(lambda name: look(build, name), stale)):
            if not found and key_of[name] is not None:
                (CACHE / key_of[name]).touch()
            for line in found:
                wrong.setdefault(line, name)
    # What a header has is found once for each source that includes it.
    print("\n".join(wrong))
    count = sum(len(units[name][2]) for name in names)
    print(f"tidy: {count} sources, {len(stale)} of {len(names)} compilations looked at, {len(set(wrong.values()))} not clean")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
