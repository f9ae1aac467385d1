#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the lines about several processes: what each one is started with."""

import unittest
from unittest import mock

import tenant_lines
import testing_programs


class RatesTest(testing_programs.ProgramsTest):
    def started(self, rounds):
        """The arguments of each process of all rounds, by (line's kind, side)."""
        one = self.quiet_run(rounds=rounds, rate_s=1, quick=False)
        one.full = True
        started = {}

        def start(side, *arguments, **_):
            started.setdefault(("--changing" in arguments, side), []).append(arguments)
            bench = mock.Mock()
            bench.lines.return_value = [{"median": 1000.0}]
            return bench

        one.sides.start = start
        tenant_lines.measure_rates(one)
        self.assertFalse(one.results.errors)
        self.assertEqual(one.results.values["launch_rate_changing_8", "gpuloom"], [8.0] * rounds)
        return started

    def test_no_process_of_a_line_repeats_another_one_s_sequence(self):
        eight = [arguments for arguments in self.started(3)[True, "gpuloom"] if "--threads" not in arguments][-8:]
        seeds = [arguments[arguments.index("--seed") + 1] for arguments in eight]
        self.assertEqual(len(set(seeds)), 8, seeds)

    def test_no_round_repeats_another_one_s_sequences(self):
        threads = [arguments for arguments in self.started(3)[True, "gpuloom"] if "--threads" in arguments]
        seeds = [arguments[arguments.index("--seed") + 1] for arguments in threads]
        self.assertEqual(len(set(seeds)), 3, seeds)


if __name__ == "__main__":
    unittest.main()
