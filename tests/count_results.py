#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts test cases.

usage: count_results.py BUILD_DIR            counts
       count_results.py --again BUILD_DIR    which failed tests are to run once more, as a pattern for ctest -R

Reads ctest's junit.xml, what it printed (ctest.log) and, for tests that are GoogleTest programs, the cases in results/<test>.xml. A program that
crashed counts as one failure, beside the cases that its file still tells about. Prints "passed failed skipped unsteady" on the
first line, then one line for each failed or skipped case, and for each unsteady test.

A test may fail because a machine with much else to do stood still. Up to MOST_AGAIN tests of a build are run once more, alone
(junit_again.xml): one that passes then is unsteady, which does not fail the run and is said at its end. A crash, or what a
sanitizer found, is a failure however often it does not come again.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as xml

MOST_AGAIN = 2
FOUND = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:|Assertion `[^`']*' failed")
ENDED = re.compile(r"^\s+\d+ - (\S+) \(([^)]*)\)", re.MULTILINE)


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


def Tests(path):
    """{name: element} of one of ctest's files; none if there is no such file."""
    return {test.get("name"): test for test in xml.parse(path).getroot().iter("testcase")} if path.is_file() else {}


def MayRunAgain(test, ended):
    """`test` failed. Not if it crashed or a sanitizer found something, in it or in a process whose output it shows."""
    return ended in ("Failed", "Timeout") and not FOUND.search(test.findtext("system-out", ""))


def Again(build):
    failed = [test for test in Tests(build / "junit.xml").values() if test.get("status") == "fail"]
    # How each ended stands only in what ctest prints last.
    ended = dict(ENDED.findall((build / "ctest.log").read_text(errors="replace")))
    return failed if len(failed) <= MOST_AGAIN and all(MayRunAgain(test, ended.get(test.get("name"))) for test in failed) else []


def Count(build):
    first, again = Tests(build / "junit.xml"), Tests(build / "junit_again.xml")
    cases = []
    for name, test in {**first, **again}.items():
        state = {"run": "passed", "fail": "failed"}.get(test.get("status"), "skipped")
        if name in first and first[name].get("status") == "fail" and state == "passed":
            cases.append(("unsteady", name))
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
    if sys.argv[1] == "--again":
        names = [re.escape(test.get("name")) for test in Again(pathlib.Path(sys.argv[2]))]
        if names:
            print(f"^({'|'.join(names)})$")
        return
    cases = Count(pathlib.Path(sys.argv[1]))
    print(*(sum(state == wanted for state, _ in cases) for wanted in ("passed", "failed", "skipped", "unsteady")))
    for state, name in cases:
        if state != "passed":
            print(f"  {state}: {name}")


if __name__ == "__main__":
    main()
