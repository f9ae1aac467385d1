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

    def calls_of(self, speeds_of):
        one = self.quiet_run()
        alone_lines.measure_calls(one, 0, speeds_of)
        return one.results

    def test_a_program_is_started_once_on_each_side_for_all_turns_of_a_round(self):
        for name in alone_lines.PROGRAMS:
            one = self.quiet_run(seconds=0.05)
            alone_lines.measure_program(one, 0, name, self.command)
            self.assertFalse(one.results.errors)
            self.assertEqual(len(one.results.values[alone_lines.row(name), "gpuloom"]), alone_lines.PROGRAM_TURNS)
            self.assertGreater(one.results.median(alone_lines.row(name), "gpuloom"), 0)
        started = self.tenants()
        self.assertEqual(len(started), 2 * len(alone_lines.PROGRAMS))
        self.assertEqual(len({words.split("--state-dir ")[1].split()[0] for words in started}), 2, "a scheduler for each side")

    def test_a_program_s_sides_change_their_order(self):
        order = []

        class Company(alone_lines.Company):
            def play(self, players, seconds, arrivals=None):
                order.append(self.side)
                return [{"steps": len(order), "seconds": 1}]

        one = self.quiet_run(seconds=0.05)
        with mock.patch.object(alone_lines, "Company", Company):
            alone_lines.measure_program(one, 0, self.NAME, self.command)
        self.assertEqual(order, ["gpuloom", "unshared", "unshared", "gpuloom"] * (alone_lines.PROGRAM_TURNS // 2))
        steps = range(1, 2 * alone_lines.PROGRAM_TURNS, 2)
        self.assertEqual(one.results.values[alone_lines.row(self.NAME), "gpuloom"],
                         [first / (first + 1) if turn % 2 == 0 else (first + 1) / first for turn, first in enumerate(steps)])

    def test_sides_change_their_order(self):
        order = []

        def speeds(_run, side, number):
            order.append((side, number))
            return {"launch_call": 1.0 + number if side == "gpuloom" else 2.0}

        one = self.quiet_run(rounds=2, only=["sharing_alone_launch"])
        alone_lines.measure(one, functools.partial(alone_lines.measure_calls, speeds_of=speeds))
        self.assertEqual([side for side, _ in order], ["gpuloom", "unshared", "unshared", "gpuloom"] * alone_lines.TURNS)
        self.assertEqual(one.results.values[alone_lines.row("launch_call"), "gpuloom"],
                         [0.5 * (number + 1) for number in range(2 * alone_lines.TURNS)])

    def test_only_what_is_wanted_is_measured(self):
        asked = []
        one = self.quiet_run(rounds=2, seconds=0.05, only=["sharing_alone_resnet50_b1"])
        one.full = True
        alone_lines.measure(one, calls=lambda *_: asked.append("calls"), program=lambda _, number, name: asked.append((name, number)))
        self.assertEqual(asked, [("resnet50_b1", 0), ("resnet50_b1", 1)])

    def test_the_ratio_is_of_speeds(self):
        results = self.calls_of(lambda _, side, __: {"launch_call": {"gpuloom": 3.0, "unshared": 4.0}[side]})
        self.assertEqual(results.median(alone_lines.row("launch_call"), "gpuloom"), 0.75)

    def test_a_side_that_fails_is_the_error_of_its_line(self):
        def fails(_, side, __):
            if side == "unshared":
                raise alone_lines.Failed("no device")
            return {"launch_call": 1.0}

        results = self.calls_of(fails)
        self.assertIn("no device", results.errors[alone_lines.row("launch_call"), "unshared"])
        self.assertFalse(results.values)


if __name__ == "__main__":
    unittest.main()
