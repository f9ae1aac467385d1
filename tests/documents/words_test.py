#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The check of words finds what has been retired, and nothing in good names, comments, literals and tests' names."""

import pathlib
import tempfile
import unittest

import words


class WordsTest(unittest.TestCase):
    def Wrong(self, text, name="shim/a.cc"):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, name)
            path.parent.mkdir(parents=True)
            path.write_text(text)
            return words.Check(pathlib.Path(directory))

    def testWordsOfAnIdentifier(self):
        for identifier, expected in (("wait", "wait"), ("told_ns_", "told_ns"), ("kLookAtNs", "k_look_at_ns"), ("LetGo", "let_go"), ("cuInit_v2", "cu_init_v_2")):
            self.assertEqual(expected, words.Words(identifier))

    def testRetiredWords(self):
        for identifier in ("told_ns_", "IsTold", "Tell", "TellLater", "RecordedAsker", "on_visitor_", "LetGo", "let_go", "LookAtSlots",
                           "LookAgain", "GotOn", "HaveGone", "nobody_there_", "BrokenPromises", "WhoRuns", "AnyoneWaitsForUs"):
            self.assertEqual(1, len(self.Wrong(f"int {identifier} = 0;\n")), identifier)
            self.assertEqual(1, len(self.Wrong(f"int {identifier};\n", "agent/a.h")), identifier)

    def testEachIdentifierOnceAndWithWhatToSay(self):
        self.assertEqual(["shim/a.cc: IsTold: say report, send, notify, answer"], self.Wrong("IsTold(); IsTold();\n"))

    def testGoodNames(self):
        for identifier in ("told", "tell", "Lookup", "Looks", "tells_gpu", "settled_ns_", "intellect_", "Outlooks", "Placed", "OnRelease"):
            self.assertEqual([], self.Wrong(f"int {identifier} = 0;\n"), identifier)

    def testWhatIsNoIdentifier(self):
        self.assertEqual([], self.Wrong('// IsTold, LetGo\nTEST_F(NodeTest, ThePodIsToldWhy) { Log("IsTold"); }\n'))
        self.assertEqual([], self.Wrong("def IsTold(): pass\n", "tests/a.py"))
        self.assertEqual(1, len(self.Wrong("TEST_F(ToldTest, ThePodIsToldWhy) {}\n")))


if __name__ == "__main__":
    unittest.main()
