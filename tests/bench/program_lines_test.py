#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the lines about programs, with a program that needs no GPU: rounds, comparison, failures, what is left out."""

import unittest

import program_lines
import run
import table
import testing_programs

LOOP = """
import sys, time
sys.path.insert(0, {here!r})
import loop

class Sleep:
    steps = 0
    def issue(self):
        Sleep.steps += 1
        return {ours} if "tenant" in sys.argv[0] else 0.02
    def finish(self, seconds):
        time.sleep(seconds)
    def check(self):
        return {answer}

def broken():
    raise RuntimeError("no such device")

sys.argv = [sys.argv[0] + ("tenant" if "GPULOOM_TEST_TENANT" in __import__("os").environ else "")] + sys.argv[1:]
sys.exit(loop.main({{"sleep": Sleep, "broken": broken}}))
"""


class ProgramLinesTest(testing_programs.ProgramsTest):
    BEFORE_TENANT = "export GPULOOM_TEST_TENANT=1\necho gpuloom: cuFoo is not supported >&2\n"

    def measure(self, cast, ours_s=0.001, answer="'right'", mps=None, budget=None, only=()):
        self.program.write_text(LOOP.format(here=str(testing_programs.HERE), ours=ours_s, answer=answer))
        one = self.quiet_run(only=list(only), budget=budget, program_rounds=2, seconds=0.1)
        one.memory_used_mib = lambda: 0
        one.mps_environment = mps
        program_lines.measure(one, cast, self.command)
        return one.results

    def test_alone(self):
        results = self.measure(program_lines.alone(["sleep"]))
        self.assertFalse(results.errors)
        self.assertEqual(len(results.values["sleep", "native"]), 2)
        self.assertGreater(results.median("sleep", "gpuloom"), results.median("sleep", "native"))
        self.assertEqual(results.facts["sleep", "gpuloom"]["results"], "same")
        self.assertGreaterEqual(results.details["sleep", "native"]["p50_ms"][0][0], 20)
        self.assertIn("| sleep | gpuloom |", table.markdown([], results))

    def test_together_grows_and_asks_mps_where_it_is(self):
        cast = program_lines.together("sleep", ["sleep"] * 4, (2, 4))
        results = self.measure(cast, mps={"A": "b"})
        self.assertFalse(results.errors)
        self.assertEqual([len(results.details[f"sleep_x{n}", "mps"]["rates"][0]) for n in (2, 4)], [2, 4])
        for line in ("sleep_x2", "sleep_x4"):
            rates = results.details[line, "native"]["rates"]
            self.assertEqual(results.values[line, "native"], [sum(together) for together in rates])
        self.assertIn("gpuloom / MPS", table.markdown([], results))
        without = self.measure(program_lines.together("sleep", ["sleep"] * 2, (2,)))
        self.assertNotIn("MPS", table.markdown([], without))

    def test_different_programs_are_weighed_by_what_each_does_alone(self):
        cast = program_lines.together("mixed", ["sleep", "sleep"], (2,))
        cast.lines[0].weighted = True
        results = self.measure(cast)
        self.assertEqual(results.units["mixed_x2"], "× one alone")
        rates = results.details["mixed_x2", "native"]["rates"]
        alone = [sum(together) / value for together, value in zip(rates, results.values["mixed_x2", "native"])]
        self.assertAlmostEqual(alone[0], alone[1])
        self.assertLessEqual(alone[0], 50)  # a step takes 20 ms

    def test_wrong_results_fail_the_line(self):
        results = self.measure(program_lines.alone(["sleep"]), answer="'wrong' if 'tenant' in sys.argv[0] else 'right'")
        self.assertIn(("sleep", "gpuloom"), results.errors)
        self.assertEqual(results.facts["sleep", "gpuloom"]["results"], "**different**")
        text = table.markdown([], results)
        self.assertIn("**different**", text)
        self.assertIn("results differ", text)

    def test_results_that_become_wrong_fail_the_line(self):
        results = self.measure(program_lines.alone(["sleep"]),
                               answer="'wrong' if 'tenant' in sys.argv[0] and Sleep.steps else 'right'")
        self.assertIn("results differ", results.errors["sleep", "gpuloom"])

    def test_a_program_that_does_not_start_is_its_line_s_failure_only(self):
        results = self.measure(program_lines.alone(["broken", "sleep"]))
        self.assertIn("no such device", results.errors["broken", "native"])
        self.assertNotIn(("sleep", "native"), results.errors)
        self.assertEqual(results.facts["sleep", "gpuloom"]["results"], "same")

    def test_what_does_not_fit_the_budget_is_said_to_be_left_out(self):
        results = self.measure(program_lines.alone(["sleep"]), budget=1)
        self.assertFalse(results.values)
        self.assertIn("sleep", results.notes[0])
        self.assertIn("Left out", table.markdown([], results))

    def test_only_what_is_wanted(self):
        results = self.measure(program_lines.alone(["broken", "sleep"]), only=["sl"])
        self.assertEqual(list(results.units), ["sleep", "sleep_cpu"])


class SelectionTest(unittest.TestCase):
    def test_groups_and_beginnings(self):
        only = run.Selection(["programs", "launch"], ["launch_rate"])
        self.assertTrue(only.wants("programs", "gemm_4096"))
        self.assertTrue(only.wants("micro", "launch_call"))
        self.assertFalse(only.wants("micro", "event_query"))
        self.assertFalse(only.wants("rates", "launch_rate_8"))
        self.assertEqual(only.bench_arguments("micro"), ["--only", "launch", "--skip", "launch_rate"])
        self.assertFalse(run.Selection(["programs"], []).may_want("micro"))
        self.assertFalse(run.Selection(["resnet50_b1_x4"], []).may_want("micro"))
        self.assertTrue(run.Selection(["resnet50_b1_x4"], []).may_want("mixes"))
        self.assertTrue(run.Selection(["copy_h2d", "mem"], []).may_want("micro"))
        self.assertTrue(run.Selection([], ["mixes"]).wants("programs", "resnet50_b1"))


if __name__ == "__main__":
    unittest.main()
