#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refuses a call of a driver function that is newer than the oldest supported driver and that nobody asks for first.

usage: driver_versions.py [--root DIR]

proto/cuda/driver.h leaves such functions null. The node's programs call them through a Driver; each must be compared with
nullptr somewhere in the same program, or another function must that comes with it (TOGETHER). Exit status 1 and one line
`file:line: message` per offence. That the comparison stands before the call, the tests with older drivers show
(tests/conformance/CMakeLists.txt).
"""

import argparse
import pathlib
import re
import sys

PROGRAMS = ["agent/executor", "agent/scheduler"]
# Whoever has asked for the second need not ask for the first: they are of one version, or the first is older.
TOGETHER = {
    "cuLibraryEnumerateKernels": "cuLibraryGetKernelCount",
}


def Versions(root):
    rows = re.findall(r"PROC_ADDRESS\(\w+, (\d+), \w+, (\w+),", (root / "proto/cuda/proc_address.def").read_text())
    return {symbol: int(version) for version, symbol in rows}


def Oldest(root):
    return int(re.search(r"kOldestDriverVersion = (\d+)", (root / "proto/cuda/driver_version.h").read_text())[1])


def Sources(folder):
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".cc", ".h") and not path.stem.endswith(("_test", "_fuzz")) and "testing" not in path.parts:
            yield path


def Offences(root):
    versions = Versions(root)
    oldest = Oldest(root)
    for program in PROGRAMS:
        texts = {path: path.read_text() for path in Sources(root / program)}
        asked = {name for text in texts.values() for name in re.findall(r"\b(cu[A-Z]\w*) [!=]= nullptr", text)}
        for path, text in texts.items():
            for number, line in enumerate(text.splitlines(), 1):
                for name in re.findall(r"(?:\.|->)(cu[A-Z]\w*)\(", line):
                    if versions.get(name, 0) <= oldest or name in asked or TOGETHER.get(name) in asked:
                        continue
                    yield f"{path.relative_to(root)}:{number}: {name} is of CUDA {versions[name] // 1000}." \
                          f"{versions[name] % 1000 // 10}; compare it with nullptr before, older drivers lack it"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    offences = list(Offences(parser.parse_args().root))
    for offence in offences:
        print(offence)
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
