#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the lines about inference beside training, with a program that needs no GPU: latencies from the arrival,
figures against the same side's alone, terms of each process."""

import json
import pathlib
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from types import SimpleNamespace

import inference_lines
import loop
import run
from processes import Sides

HERE = pathlib.Path(__file__).resolve().parent

PROGRAM = """
import sys, time
sys.path.insert(0, {here!r})
import loop

class Sleep:
    def issue(self):
        return 0
    def finish(self, _):
        time.sleep(0.01)
    def check(self):
        return "right"

sys.exit(loop.main(dict.fromkeys(sys.argv[1:], Sleep)))
"""


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


class InferenceLinesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / "program.py"
        self.program.write_text(PROGRAM.format(here=str(HERE)))
        gpuloom = self.folder / "gpuloom"  # gpuloom run … -- command
        gpuloom.write_text(f'#!/bin/sh\necho "$@" >> {self.folder}/tenants\n'
                           'while [ "$1" != -- ]; do shift; done; shift\nexec "$@"\n')
        gpuloom.chmod(gpuloom.stat().st_mode | stat.S_IXUSR)
        self.gpuloom = str(gpuloom)

    def command(self, name):
        return [sys.executable, str(self.program), name]

    def measure(self, command=None):
        options = SimpleNamespace(softgpu=True, only=[], skip=[], budget=None, rounds=1, inference_s=0.3, warm_s=0.01,
                                  prepare_s=0, gpu=0)
        sides = Sides("bench", "libcuda.so.1", self.gpuloom, ["--state-dir", str(self.folder)], None)
        one = run.Run(options, sides, str(self.folder))
        one.say = lambda text: None
        inference_lines.measure(one, command or self.command)
        return one.results

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
        results = self.measure()
        self.assertFalse(results.errors)
        for row in inference_lines.ROWS:
            for side in ("native", "gpuloom"):
                self.assertEqual(len(results.values[row, side]), 1, (row, side))
        # Who sleeps is not disturbed: trainings keep their rate, which is twice what the inference leaves them.
        self.assertAlmostEqual(results.median("sharing_training_beside_inference", "native"), 2, delta=0.5)

    def test_the_server_is_high_and_all_others_are_low(self):
        self.measure()
        tenants = (self.folder / "tenants").read_text().splitlines()
        self.assertEqual([(line.split("--priority ")[1].split()[0], line.split()[-1]) for line in sorted(tenants)],
                         [("high", "resnet50_b1"), ("low", "gemm_4096")] + [("low", "transformer_training")] * 2)

    def test_a_program_that_is_missing_is_said_for_each_side(self):
        results = self.measure(lambda name: [sys.executable, "-c", "raise SystemExit('no torch here')"])
        self.assertIn("no torch here", results.errors[inference_lines.ROWS[0], "native"])
        self.assertIn("without a native figure", results.errors[inference_lines.ROWS[0], "gpuloom"])


if __name__ == "__main__":
    unittest.main()
