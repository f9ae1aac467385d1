#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The numbers of docs/design/limits.md are the code's, and no limit of the code is missing there.

A row's last cell names a constant and its file: `kName` in `path`. Its second cell begins with the number, with a unit
or without. Every constant called kMax… or kMost… in FOLDERS has a row, or stands in the last section.

usage: limits.py [--root DIR]
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/design/limits.md"
FOLDERS = ["proto/wire", "shim", "agent/executor", "agent/scheduler"]
LAST = "## What bounds no tenant"

CONSTANT = re.compile(r"\bconstexpr\s+([\w:<>\s]+?)\s+(k[A-Z]\w*)\s*(?:=\s*|\{)([^;]+?)\}?;", re.DOTALL)
PLACE = re.compile(r"`(k\w+)` in `([\w./]+)`")
NUMBER = re.compile(r"([\d,]+)(?: (KiB|MiB|GiB|bytes|ns|us|ms|s)\b)?")
BYTES = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
NANOSECONDS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def Value(kind, expression):
    """The constant's value: nanoseconds of a duration, otherwise as it stands. None when it is not plain arithmetic."""
    expression = re.sub(r"//[^\n]*", "", expression)
    expression = re.sub(r"\b(?:u?int\d+_t|size_t|off_t)\{(\d+)\}", r"\1", expression)
    expression = re.sub(r"(?<=\d)'(?=\d)", "", expression)
    expression = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", expression)
    if not re.fullmatch(r"[\d\s()+*<-]+", expression):
        return None
    value = eval(f"({expression})")  # nothing but numbers and operators
    for name, unit in {"microseconds": "us", "milliseconds": "ms", "seconds": "s"}.items():
        if re.search(rf"\b{name}\b", kind):
            return value * NANOSECONDS[unit]
    return value


def Constants(path):
    """{name: value} of one file."""
    return {name: Value(kind, expression) for kind, name, expression in CONSTANT.findall(path.read_text())}


def Rows(text):
    """(line number, cells) of each row of a table."""
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 7 and cells[0] != "what" and not cells[0].startswith("---"):
            yield number, cells


def Check(root):
    page = (root / PAGE).read_text()
    table, _, others = page.partition(LAST)
    wrong, named = [], set()
    for number, cells in Rows(table):
        where = f"{PAGE}:{number}"
        place, limit = PLACE.fullmatch(cells[6]), NUMBER.match(cells[1])
        if not place or not limit:
            wrong.append(f"{where}: a row begins | what | NUMBER [UNIT] … and ends | `kName` in `path` |")
            continue
        name, path = place.groups()
        named.add((path, name))
        if not (root / path).is_file():
            wrong.append(f"{where}: there is no {path}")
            continue
        value = Constants(root / path).get(name)
        said = int(limit[1].replace(",", "")) * (BYTES | NANOSECONDS | {None: 1})[limit[2]]
        if value is None:
            wrong.append(f"{where}: {path} has no constant {name} that is plain arithmetic")
        elif value != said:
            wrong.append(f"{where}: {name} of {path} is {value}, and the page says {limit[0]}")
    excepted = set(re.findall(r"`(k\w+)`", others))
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cc") or re.search(r"_test\.cc$|_fuzz\.cc$|testing_|testdata", path.as_posix()):
                continue
            relative = path.relative_to(root).as_posix()
            for name in Constants(path):
                if re.match(r"k(Max|Most)[A-Z]", name) and (relative, name) not in named and name not in excepted and not (
                        name.endswith("PayloadBytes")):
                    wrong.append(f"{PAGE}: {name} of {relative} has no row: add one, or, when no tenant can reach it, "
                                 f"its name to \"{LAST[3:]}\"")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    wrong = Check(parser.parse_args().root)
    print("\n".join(wrong + [f"limits: {len(wrong)} differences"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
