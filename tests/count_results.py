#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts test cases. usage: count_results.py BUILD_DIR

Reads ctest's junit.xml and, for tests that are GoogleTest programs, the cases in results/<test>.xml. A program that
crashed counts as one failure, beside the cases that its file still tells about. Prints "passed failed skipped" on the
first line, then one line for each failed or skipped case.
"""

import pathlib
import sys
import xml.etree.ElementTree as xml


def CountCases(path):
    """[(state, case name)] of one GoogleTest result file."""
    cases = []
    for suite in xml.parse(path).getroot():
        for case in suite.iter("testcase"):
            name = f'{case.get("classname")}.{case.get("name")}'
            if case.find("failure") is not None:
                cases.append(("failed", name))
            elif case.get("result") == "skipped" or case.find("skipped") is not None:
                cases.append(("skipped", name))
            elif case.get("status") == "run":
                cases.append(("passed", name))
    return cases


def Count(build):
    cases = []
    for test in xml.parse(build / "junit.xml").getroot().iter("testcase"):
        name = test.get("name")
        status = test.get("status")
        state = {"run": "passed", "fail": "failed"}.get(status, "skipped")
        results = build / "results" / f"{name}.xml"
        try:
            inner = CountCases(results) if results.is_file() else []
        except xml.ParseError:
            inner = []  # the program died while it wrote
        inner_failed = any(s == "failed" for s, _ in inner)
        if not inner or (state == "failed" and not inner_failed):
            cases.append((state, name))
        cases += [(s, f"{name}: {case}") for s, case in inner]
    return cases


def main():
    cases = Count(pathlib.Path(sys.argv[1]))
    print(*(sum(state == wanted for state, _ in cases) for wanted in ("passed", "failed", "skipped")))
    for state, name in cases:
        if state != "passed":
            print(f"  {state}: {name}")


if __name__ == "__main__":
    main()
