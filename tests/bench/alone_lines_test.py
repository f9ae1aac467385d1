#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the lines about a tenant that is alone, with a program that needs no GPU."""

import functools
import unittest
from unittest import mock

import alone_lines
import testing_programs


class AloneLinesTest(testing_programs.ProgramsTest):
    NAME = alone_lines.PROGRAMS[0]

    def measure(self, speeds_of):
        one = self.quiet_run(rounds=1, seconds=0.1)
        alone_lines.measure_part(one, self.NAME, speeds_of, 0)
        return one.results

    def test_a_program_runs_once_with_sharing_and_once_without(self):
        for name in alone_lines.PROGRAMS:
            results = self.measure(functools.partial(alone_lines.speeds_of_program, name, command=self.command))
            self.assertFalse(results.errors)
            self.assertEqual(len(results.values[alone_lines.row(name), "gpuloom"]), 1)
            self.assertGreater(results.median(alone_lines.row(name), "gpuloom"), 0)
        self.assertEqual(len(self.tenants()), 2 * len(alone_lines.PROGRAMS))

    def test_each_round_is_a_ratio_of_its_own_and_sides_change_their_order(self):
        one = self.quiet_run(rounds=8, only=["sharing_alone"])
        one.full = True
        order = []

        def speeds(name, _run, side, number, **_):
            order.append((name, side, number))
            return {name: 1.0 + number if side == "gpuloom" else 2.0}

        calls = functools.partial(speeds, alone_lines.CALLS[0])
        with mock.patch.object(alone_lines, "speeds_of_program", speeds), mock.patch.object(alone_lines, "speeds_of_calls", calls):
            alone_lines.measure(one)
        for name in (alone_lines.CALLS[0], *alone_lines.PROGRAMS):
            values = one.results.values[alone_lines.row(name), "gpuloom"]
            self.assertEqual(values, [0.5 * (number + 1) for number in range(8)])
            self.assertEqual([side for its, side, _ in order if its == name], ["gpuloom", "unshared", "unshared", "gpuloom"] * 4)

    def test_the_ratio_is_of_speeds(self):
        results = self.measure(lambda _, side, __: {"launch_call": {"gpuloom": 3.0, "unshared": 4.0}[side]})
        self.assertEqual(results.median(alone_lines.row("launch_call"), "gpuloom"), 0.75)

    def test_a_side_that_fails_is_the_error_of_its_line(self):
        def fails(_, side, __):
            if side == "unshared":
                raise alone_lines.Failed("no device")
            return {"launch_call": 1.0}

        results = self.measure(fails)
        self.assertIn("no device", results.errors[alone_lines.row(self.NAME), "unshared"])
        self.assertFalse(results.values)


if __name__ == "__main__":
    unittest.main()
