#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests compare_wrong_calls.py."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

import compare_wrong_calls as tool

GOLDEN = "a: one\tX\na: two\tY\na: three\tcrashed\nb: four\tZ\n"


class CompareWrongCalls(unittest.TestCase):
    def run_main(self, got, accepted="", *more):
        with tempfile.TemporaryDirectory() as folder:
            files = {"golden": GOLDEN, "got": got, "accepted": accepted}
            for name, text in files.items():
                pathlib.Path(folder, name).write_text(text)
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                status = tool.main([f"{folder}/golden", "--accepted", f"{folder}/accepted", "--got", f"{folder}/got",
                                    *more])
            return status, said.getvalue()

    def test_equal(self):
        status, said = self.run_main("a: one\tX\na: two\tY\na: three\tQ\nb: four\tZ\n")
        self.assertEqual(status, 0)
        self.assertIn("3 equal, 0 different with a reason, 0 different", said)

    def test_a_difference_fails_and_is_shown(self):
        status, said = self.run_main("a: one\tX\na: two\tN\nb: four\tZ\n")
        self.assertEqual(status, 1)
        self.assertIn("a: two\tnative Y\there N", said)

    def test_a_missing_case_is_a_difference(self):
        status, said = self.run_main("a: one\tX\na: two\tY\n")
        self.assertEqual(status, 1)
        self.assertIn("b: four\tnative Z\there missing", said)

    def test_accepted_only_with_that_code(self):
        self.assertEqual(self.run_main("a: one\tX\na: two\tN\nb: four\tZ\n", "a: *\tN\tbecause\n")[0], 0)
        self.assertEqual(self.run_main("a: one\tX\na: two\tM\nb: four\tZ\n", "a: *\tN\tbecause\n")[0], 1)

    def test_what_is_accepted_and_not_needed_is_named(self):
        _, said = self.run_main("a: one\tX\na: two\tY\nb: four\tZ\n", "# c\n\na: two\tN\tbecause\n")
        self.assertIn("not needed here: a: two\tN", said)

    def test_a_reason_is_needed(self):
        with self.assertRaises(ValueError):
            self.run_main(GOLDEN, "a: two\tN\t \n")

    def test_no_answers_are_no_success(self):
        self.assertEqual(self.run_main("cannot start\n")[0], 2)

    def test_runs_a_command(self):
        with tempfile.TemporaryDirectory() as folder:
            golden = pathlib.Path(folder, "golden")
            golden.write_text("a: one\tX\n")
            with contextlib.redirect_stdout(io.StringIO()):
                accepted = pathlib.Path(folder, "accepted")
                accepted.write_text("")
                self.assertEqual(tool.main([str(golden), "--accepted", str(accepted), "--", sys.executable, "-c", "print('a: one\\tX')"]), 0)


if __name__ == "__main__":
    unittest.main()
