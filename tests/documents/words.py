#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Identifiers of C++ and CUDA sources use the field's words: those that have been retired for them do not come back.

usage: words.py [--root DIR]

Not looked at are comments, literals, tests' names, which are sentences, and variables of one word. Exit status 1 and one
line per wrong identifier, with what to say instead.
"""

import argparse
import pathlib
import re
import sys

import names

# Of an identifier's words in lower case, put together with "_": what is retired, and its substitute.
RETIRED = {
    r"askers?": "client, caller",
    r"visitors?": "connection, peer",
    r"tell|told|teller|untold": "report, send, notify, answer",
    r"let_go": "release",
    r"let_in": "admit",
    r"got_on": "progress",
    r"look_(?:again|at|idle|into|unused)|take_look": "check, poll, inspect, update",
    r"ha(?:s|ve)_gone": "what it is: submitted, released, ended",
    r"(?:somebody|anyone)_(?:may|waits)": "any, can, has",
    r"nobody_there": "not listening",
    r"broken_promises?": "impossible rule",
    r"how_it_ended|what_is_off|who_runs": "a noun",
    r"stare|knock|bury": "the field's word",
}
WRONG = [(re.compile(rf"(?:^|_)(?:{words})(?:_|$)"), instead) for words, instead in RETIRED.items()]

LITERAL = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.DOTALL)
TEST = re.compile(r"\b(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*\w+\s*\)")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def Words(identifier):
    """"wait", "told_ns" and "kLookAtNs" as "wait", "told_ns" and "k_look_at_ns"."""
    return "_".join(WORD.findall(identifier)).lower()


def Check(root):
    wrong = []
    for path, name in names.check.Files(root):
        if path.suffix not in names.CPP:
            continue
        code, _ = names.SplitCpp(path.read_text(encoding="utf-8", errors="replace"))
        code = TEST.sub(r"TEST(\1, )", LITERAL.sub('""', code))
        for identifier in sorted(set(names.WORD.findall(code))):
            words = Words(identifier)
            if "_" not in words and identifier.islower():
                continue
            wrong += [f"{name}: {identifier}: say {instead}" for pattern, instead in WRONG if pattern.search(words)]
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    wrong = Check(parser.parse_args().root)
    print("\n".join(wrong + [f"words: {len(wrong)} identifiers with retired words"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
