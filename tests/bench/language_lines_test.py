#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the lines about two language models, with a program that needs no GPU."""

import sys
import unittest

import language_lines
import testing_programs


class LanguageLinesTest(testing_programs.ProgramsTest):
    def test_every_row_of_every_side(self):
        results = self.results_of(language_lines.measure)
        self.assertFalse(results.errors)
        for requests in language_lines.IN_FLIGHT:
            row = language_lines.row(requests)
            # Two that work 4 of at least 10 ms.
            self.assertTrue(0 < results.median(f"{row}_busy", "native") <= 80)
            for name in (row, f"{row}_domains"):
                for side in ("native", "gpuloom"):
                    self.assertEqual(len(results.values[name, side]), 1, (name, side))
                    self.assertGreater(results.median(name, side), 0)

    def test_the_second_of_each_pair_has_a_domain_of_its_own_in_two_domains(self):
        self.results_of(language_lines.measure)
        seconds = [line.split()[-1] for line in self.tenants() if "--domain second" in line]
        everybody = [line.split()[-1] for line in self.tenants()]
        for requests in language_lines.IN_FLIGHT:
            name = language_lines.program(requests)
            self.assertEqual((seconds.count(name), everybody.count(name)), (1, 4))

    def test_other_words_than_natively_are_an_error(self):
        program = self.folder / "lies.py"
        program.write_text(self.program.read_text().replace(
            'return "right"', 'import os\n        return str(os.getpid())'))
        errors = self.results_of(language_lines.measure, lambda name: [sys.executable, str(program), name]).errors
        self.assertIn("natively", errors[language_lines.row(2), "native"])


if __name__ == "__main__":
    unittest.main()
