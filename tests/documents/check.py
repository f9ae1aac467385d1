#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The documents name things that exist: tests (`Suite.Name`), files (`proto/wire/ring_reader.h`) and links. Rows of their tables
end where their line does, without which the table ends there too. docs/design/executor-parts.md has a row for every part.

usage: check.py
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEST = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST)\((\w+),\s*(\w+)\)", re.MULTILINE)
NAMED_TEST = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")
NAMED_FILE = re.compile(r"`((?:proto|shim|agent|tests|deploy|charts|docs)/[\w./-]*)`")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)")
PARTS_PAGE = "docs/design/executor-parts.md"
PART = re.compile(r"\bclass (\w+)(?: final)? : public Part\b")
HEADING = re.compile(r"#{1,6} +(.*?)(?: +#+)?$")


def Tests():
    names = set()
    for folder in ("proto", "shim", "agent", "tests"):
        for path in (ROOT / folder).rglob("*.cc"):
            names.update(f"{suite}.{name}" for suite, name in TEST.findall(path.read_text(errors="replace")))
    return names


def Anchors(text):
    """Of its headings, as GitHub makes them: small letters, digits, - and _, of several that are alike all but the first numbered."""
    anchors, is_code = set(), False
    for line in text.splitlines():
        is_code ^= line.lstrip().startswith("```")
        heading = None if is_code else HEADING.match(line)
        if not heading:
            continue
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1])
        begin = anchor = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number = 0
        while anchor in anchors:
            number += 1
            anchor = f"{begin}-{number}"
        anchors.add(anchor)
    return anchors


def DeadLink(document, name, anchor):
    target = document.parent / name if name else document
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in Anchors(target.read_text())


def BrokenRows(text):
    """The numbers of lines that begin a table's row and do not end it."""
    numbers, is_code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        if not is_code and line.lstrip().startswith("|") and not line.rstrip().endswith("|"):
            numbers.append(number)
    return numbers


def PartRows(page):
    """The names in the first column of the table of parts."""
    section = page.partition("\n## The parts\n")[2].partition("\n## ")[0]
    return {name for line in section.splitlines() if line.startswith("|") for name in re.findall(r"`(\w+)`", line.split("|")[1])}


def WrongParts():
    """The executor's parts that have no row, and rows of what is none."""
    headers = [path for path in (ROOT / "agent/executor").rglob("*.h") if "testing" not in path.parts]
    parts = {name for path in headers for name in PART.findall(path.read_text(errors="replace"))}
    page = ROOT / PARTS_PAGE
    rows = PartRows(page.read_text()) if page.exists() else set()
    return ([f"{PARTS_PAGE}: the part {name} has no row" for name in sorted(parts - rows)] +
            [f"{PARTS_PAGE}: {name} is no part" for name in sorted(rows - parts)])


def main():
    tests = Tests()
    wrong = []
    for document in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        text, name_here = document.read_text(), document.relative_to(ROOT)
        wrong += [f"{name_here}:{number}: the row of a table does not end in |, so the table ends here" for number in BrokenRows(text)]
        for number, line in enumerate(text.splitlines(), 1):
            where = f"{name_here}:{number}"
            wrong += [f"{where}: no test is called {name}" for name in NAMED_TEST.findall(line) if name not in tests]
            wrong += [f"{where}: there is no {name}" for name in NAMED_FILE.findall(line) if not (ROOT / name).exists()]
            wrong += [f"{where}: the link to {name}{anchor and '#' + anchor} leads nowhere" for name, anchor in LINK.findall(line)
                      if DeadLink(document, name, anchor)]
    wrong += WrongParts()
    print("\n".join(wrong + [f"documents: {len(wrong)} wrong names, links and rows"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
