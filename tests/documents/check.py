#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documents name things that exist: tests (`Suite.Name`), files (`proto/wire/ring_reader.h`) and links.

usage: check.py
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEST = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST)\((\w+),\s*(\w+)\)", re.MULTILINE)
NAMED_TEST = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")
NAMED_FILE = re.compile(r"`((?:proto|shim|agent|tests|deploy|charts|docs)/[\w./-]*)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")


def Tests():
    names = set()
    for folder in ("proto", "shim", "agent", "tests"):
        for path in (ROOT / folder).rglob("*.cc"):
            names.update(f"{suite}.{name}" for suite, name in TEST.findall(path.read_text(errors="replace")))
    return names


def main():
    tests = Tests()
    wrong = []
    for document in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        for number, line in enumerate(document.read_text().splitlines(), 1):
            where = f"{document.relative_to(ROOT)}:{number}"
            wrong += [f"{where}: no test is called {name}" for name in NAMED_TEST.findall(line) if name not in tests]
            wrong += [f"{where}: there is no {name}" for name in NAMED_FILE.findall(line) if not (ROOT / name).exists()]
            wrong += [f"{where}: the link to {name} leads nowhere" for name in LINK.findall(line)
                      if not (document.parent / name).exists()]
    print("\n".join(wrong + [f"documents: {len(wrong)} wrong names"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
