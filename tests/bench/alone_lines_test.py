#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the lines about a tenant that is alone, with a program that needs no GPU."""

import unittest

import alone_lines
import testing_programs


class AloneLinesTest(testing_programs.ProgramsTest):
    def measure(self, speeds_of):
        one = self.quiet_run(rounds=1, seconds=0.1)
        alone_lines.measure_part(one, alone_lines.PROGRAM, speeds_of, 0)
        return one.results

    def test_a_program_runs_once_with_sharing_and_once_without(self):
        results = self.measure(lambda run, side: alone_lines.speeds_of_program(run, side, self.command))
        self.assertFalse(results.errors)
        row = alone_lines.row(alone_lines.PROGRAM)
        self.assertEqual(len(results.values[row, "gpuloom"]), 1)
        self.assertGreater(results.median(row, "gpuloom"), 0)
        self.assertEqual(len(self.tenants()), 2)

    def test_the_ratio_is_of_speeds(self):
        results = self.measure(lambda _, side: {"launch_call": {"gpuloom": 3.0, "unshared": 4.0}[side]})
        self.assertEqual(results.median(alone_lines.row("launch_call"), "gpuloom"), 0.75)

    def test_a_side_that_fails_is_the_error_of_its_line(self):
        def fails(_, side):
            if side == "unshared":
                raise alone_lines.Failed("no device")
            return {"launch_call": 1.0}

        results = self.measure(fails)
        self.assertIn("no device", results.errors[alone_lines.row(alone_lines.PROGRAM), "unshared"])
        self.assertFalse(results.values)


if __name__ == "__main__":
    unittest.main()
