#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the lines about inference beside training, with a program that needs no GPU: latencies from the arrival,
figures against the same side's alone, terms of each process."""

import json
import subprocess
import sys
import time
import unittest

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
        results = self.results_of(inference_lines.measure)
        self.assertFalse(results.errors)
        for row in inference_lines.ROWS:
            for side in ("native", "gpuloom"):
                self.assertEqual(len(results.values[row, side]), 1, (row, side))
        # Who sleeps is not disturbed: trainings keep their rate, which is twice what the inference leaves them.
        self.assertAlmostEqual(results.median("sharing_training_beside_inference", "native"), 2, delta=0.5)

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
