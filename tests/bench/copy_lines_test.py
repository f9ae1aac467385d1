#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the lines about copies beside products, with a program that needs no GPU."""

import sys
import unittest

import copy_lines
import testing_programs


class CopyLinesTest(testing_programs.ProgramsTest):
    def test_every_row_of_every_side(self):
        results = self.results_of(copy_lines.measure)
        self.assertFalse(results.errors)
        for name in copy_lines.rows():
            for side in ("native", "gpuloom"):
                self.assertEqual(len(results.values[name, side]), 1, (name, side))
                self.assertGreater(results.median(name, side), 0)

    def test_who_computes_has_a_domain_of_its_own_in_two_domains(self):
        self.results_of(copy_lines.measure)
        self.assertEqual([line.split()[-1] for line in self.tenants() if "--domain second" in line], [copy_lines.PRODUCTS])
        self.assertEqual(sorted(line.split()[-1] for line in self.tenants()), 2 * [copy_lines.PRODUCTS] + 2 * [copy_lines.COPIES])

    def test_a_program_that_is_missing_is_said_for_each_side(self):
        results = self.results_of(copy_lines.measure, lambda name: [sys.executable, "-c", "raise SystemExit('no torch here')"])
        self.assertIn("no torch here", results.errors[copy_lines.ROWS[0], "native"])
        self.assertIn("without a native figure", results.errors[copy_lines.ROWS[0], "gpuloom"])


if __name__ == "__main__":
    unittest.main()
