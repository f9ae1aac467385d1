#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The messages that the guides for operators quote in their tables are those that our programs print: whoever searches a guide
for a line finds it, and no line has changed since. In a quotation, … stands for what differs from time to time.

usage: messages_test.py [unittest's arguments]
"""

import functools
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDES = ["docs/operations.md", "docs/installation.md", "docs/upgrading.md"]
SOURCES = ["agent", "proto", "shim"]
# What begins a message of ours: the area, and some words.
AREAS = "gpuloom|identity|inventory|kubelet|kubernetes|memory|metrics|nvml|plugin|policy|shim|state|supervisor|tenant"
MESSAGE = re.compile(rf"`((?:{AREAS}): [^`]+)`")
# What the library puts before the message itself.
BEFORE = re.compile(r"^gpuloom: (no GPU: |session lost: )?(the scheduler refused this process: )?")


@functools.cache
def Printed():
    """All string literals of the product, those that the compiler joins as one, in a text."""
    texts = []
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.cc")) + sorted((ROOT / folder).rglob("*.h")):
            if not path.stem.endswith("_test") and "testing" not in path.parts:
                texts += re.findall(r'((?:"(?:[^"\\\n]|\\.)*"\s*)+)', path.read_text())
    return "\n".join(re.sub(r'"\s*"', "", text) for text in texts)


def Parts(message):
    """What of a message is the same each time, and of one literal: what has a colon before it may be another's."""
    parts = [part.strip() for part in re.split("…|: ", BEFORE.sub("", message))]
    return [part for part in parts if re.search(r"\w{2}", part)]


def Messages(name):
    """Those of the first column of a guide's tables."""
    for line in (ROOT / name).read_text().splitlines():
        if line.startswith("| "):
            yield from MESSAGE.findall(re.split(r"(?<!\\) \| ", line)[0])


class Guides(unittest.TestCase):
    def test_what_is_quoted_is_printed(self):
        for name in GUIDES:
            for message in Messages(name):
                with self.subTest(f"{name}: {message}"):
                    self.assertTrue(Parts(message))
                    for part in Parts(message):
                        self.assertTrue(part in Printed(), f"no program prints: {part}")

    def test_the_guide_by_symptom_quotes(self):
        self.assertGreater(len(list(Messages("docs/operations.md"))), 20)

    def test_a_message_that_has_changed_is_found(self):
        self.assertFalse("cannot connect with" in Printed())
        self.assertTrue("cannot connect to" in Printed())
        self.assertEqual(Parts("gpuloom: no GPU: cannot connect to …; is this a pod"), ["cannot connect to", "; is this a pod"])


if __name__ == "__main__":
    unittest.main()
