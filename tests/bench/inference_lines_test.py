#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the lines about inference beside training, with a program that needs no GPU: latencies from the arrival,
figures against the same side's alone, terms of each process."""

import json
import subprocess
import sys
import time
import unittest
from unittest import mock

import inference_lines
import loop
import testing_programs


class ArrivalsTest(unittest.TestCase):
    def test_poisson_and_the_same_from_the_same_seed(self):
        moments = list(loop.arrivals(100, 200, 50, 1))
        self.assertEqual(moments, list(loop.arrivals(100, 200, 50, 1)))
        self.assertNotEqual(moments, list(loop.arrivals(100, 200, 50, 2)))
        self.assertEqual(moments, sorted(moments))
        self.assertTrue(100 < moments[0] and moments[-1] < 200)
        self.assertAlmostEqual(len(moments), 5000, delta=300)
        gaps = [after - before for before, after in zip(moments, moments[1:])]
        self.assertAlmostEqual(sum(gap > 0.04 for gap in gaps) / len(gaps), 0.1353, delta=0.02)  # e^-2


class InferenceLinesTest(testing_programs.ProgramsTest):
    def test_latency_counts_from_the_arrival(self):
        """Twice as many as it can serve: the last ones have waited for most of the others."""
        program = subprocess.Popen(self.command("one"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(program.stdout.close)
        said, _ = program.communicate(f"prepare 0\narrive {time.monotonic() + 1} 0 0.5 200 1\n", timeout=60)
        ran = json.loads(said.splitlines()[-1])
        self.assertEqual(ran["steps"], len(list(loop.arrivals(0, 0.5, 200, 1))))
        self.assertGreater(ran["p50_ms"], 100)
        self.assertGreater(ran["p99_ms"], 300)

    def test_every_row_of_every_side(self):
        for _ in range(5):  # a machine that stalls makes one side's short windows slow
            results = self.results_of(inference_lines.measure)
            if not results.errors:
                break
        self.assertFalse(results.errors)
        for row in inference_lines.ROWS:
            for side in ("native", "gpuloom"):
                self.assertEqual(len(results.values[row, side]), 1, (row, side))

    def test_figures_are_of_the_same_sides_alone(self):
        """Half of 100 requests a second, for 4 ms each, leave 0.8 of the device. Trainings keep three quarters of their rate."""
        def answer(steps, p99_ms=0):
            return {"steps": steps, "seconds": 1, "p99_ms": p99_ms}
        server = mock.Mock()
        server.answer.return_value = {"device_s": 0.004}
        company = mock.MagicMock()
        company.__enter__.return_value = company
        company.players = [server, "training", "training", "products"]
        company.play.side_effect = [[answer(100)], [answer(50, 10)], [answer(40), answer(40)],
                                    [answer(50, 20), answer(30), answer(30)], [answer(50, 30)]]
        one = self.quiet_run(rounds=1, inference_s=1)
        with mock.patch.object(inference_lines, "Company", return_value=company):
            asked = inference_lines.measure_side(one, "native", None, self.command)
        self.assertEqual(asked.rate, 50)
        self.assertAlmostEqual(asked.left, 0.8)
        for row, wanted in zip(inference_lines.ROWS, (2, 0.75 / 0.8, 3)):
            self.assertAlmostEqual(one.results.median(row, "native"), wanted)

    def test_the_server_is_high_and_all_others_are_low(self):
        self.results_of(inference_lines.measure)
        self.assertEqual([(line.split("--priority ")[1].split()[0], line.split()[-1]) for line in sorted(self.tenants())],
                         [("high", "resnet50_b1"), ("low", "gemm_4096")] + [("low", "transformer_training")] * 2)

    def test_a_program_that_is_missing_is_said_for_each_side(self):
        results = self.results_of(inference_lines.measure, lambda name: [sys.executable, "-c", "raise SystemExit('no torch here')"])
        self.assertIn("no torch here", results.errors[inference_lines.ROWS[0], "native"])
        self.assertIn("without a native figure", results.errors[inference_lines.ROWS[0], "gpuloom"])


if __name__ == "__main__":
    unittest.main()
