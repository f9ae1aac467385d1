#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what two libcudas answered to gpuloom-wrong-calls.

  compare_wrong_calls.py GOLDEN [--accepted FILE] [--summary] -- COMMAND…     runs COMMAND and compares its output
  compare_wrong_calls.py GOLDEN [--accepted FILE] [--summary] --got FILE

GOLDEN holds NVIDIA's driver's answers, as gpuloom-wrong-calls printed them. A case that natively crashed or hung is no
measure. FILE of accepted differences: lines "case<TAB>code<TAB>reason"; case and code may hold * and ?; # begins a
comment. Prints each difference that is not accepted, and a last line with the counts; --summary prints only that.
Exit status: 0 when all are equal or accepted, 1 otherwise, 2 when there is nothing to compare.
"""

import argparse
import collections
import fnmatch
import pathlib
import subprocess
import sys

NO_MEASURE = ("crashed", "hung")


def parse_answers(text):
    """{case: code} in the order of the lines; what is no answer (the program's own messages) is left out."""
    answers = collections.OrderedDict()
    for line in text.splitlines():
        case, tab, code = line.partition("\t")
        if tab:
            answers[case] = code
    return answers


def parse_accepted(text):
    """[(case pattern, code pattern, reason)]; an entry without a reason is a mistake."""
    accepted = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != 3 or not fields[2].strip():
            raise ValueError(f"line {number}: want case, code and reason, with tabs between them")
        accepted.append(tuple(fields))
    return accepted


def compare(golden, got, accepted):
    """(equal, accepted, different) as lists of (case, wanted, got, reason); what is missing was got as None."""
    equal, known, different = [], [], []
    for case, wanted in golden.items():
        if wanted in NO_MEASURE:
            continue
        answer = got.get(case)
        if answer == wanted:
            equal.append((case, wanted, answer, ""))
            continue
        reason = next((reason for pattern, code, reason in accepted
                       if fnmatch.fnmatchcase(case, pattern) and fnmatch.fnmatchcase(answer or "missing", code)), None)
        (different if reason is None else known).append((case, wanted, answer, reason or ""))
    return equal, known, different


def unused(accepted, known):
    """Entries that no difference needed: they may have been mended."""
    return [entry for entry in accepted
            if not any(fnmatch.fnmatchcase(case, entry[0]) and fnmatch.fnmatchcase(got or "missing", entry[1])
                       for case, _, got, _ in known)]


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden")
    parser.add_argument("--accepted", help="differences that have a reason")
    parser.add_argument("--summary", action="store_true", help="only the counts")
    parser.add_argument("--got", help="a file with the other libcuda's answers")
    # What stands behind -- is the command's own; argparse would take options in front of it for the end.
    behind = arguments.index("--") if "--" in arguments else len(arguments)
    options, command = parser.parse_args(arguments[:behind]), arguments[behind + 1:]
    golden = parse_answers(pathlib.Path(options.golden).read_text())
    accepted = parse_accepted(pathlib.Path(options.accepted).read_text()) if options.accepted else []
    if options.got:
        got = parse_answers(pathlib.Path(options.got).read_text())
    elif command:
        got = parse_answers(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout)
    else:
        parser.error("nothing to compare with: give --got FILE, or a command")
    if not golden or not got:
        print("wrong calls: nothing to compare: " + ("the golden file is empty" if not golden else "no answers came"))
        return 2
    equal, known, different = compare(golden, got, accepted)
    if not options.summary:
        for case, wanted, answer, _ in different:
            print(f"{case}\tnative {wanted}\there {answer or 'missing'}")
        for case, code, _ in unused(accepted, known):
            print(f"accepted, but not needed here: {case}\t{code}")
    print(f"wrong calls: {len(equal)} equal, {len(known)} different with a reason, {len(different)} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
