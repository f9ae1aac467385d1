#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A soak's judgement: what grows is found, what warms up or jumps about is not."""

import os
import subprocess
import sys
import tempfile
import unittest

import figures


def Life(values, what="descriptors", seconds=1):
    """Looked at every so many seconds."""
    life = figures.Life("scheduler", 7)
    for number, value in enumerate(values):
        held = {"memory_kib": 1000, "descriptors": 20, "threads": 5, "age_seconds": number * seconds, what: value}
        life.looks.append((number, figures.Process(7, "scheduler", **held)))
    return life


class Judging(unittest.TestCase):
    def test_what_stays_is_good(self):
        self.assertEqual(figures.Judge([Life([20] * 9)], 4), [])

    def test_a_descriptor_a_round_is_found(self):
        (said,) = figures.Judge([Life(range(20, 32))], 4)
        self.assertIn("descriptors more", said)

    def test_memory_that_grows_is_found(self):
        (said,) = figures.Judge([Life(range(1000, 25000, 2000), "memory_kib")], 4)
        self.assertIn("memory_kib more", said)

    def test_warming_up_and_one_peak_are_not_growth(self):
        self.assertEqual(figures.Judge([Life([5, 20, 20, 20, 20, 20, 20, 20])], 4), [])
        self.assertEqual(figures.Judge([Life([20, 20, 20, 20, 20, 20, 99, 20])], 4), [])

    def test_tables_that_fill_are_not_growth_and_what_grows_then_is(self):
        fills = list(range(1000, 31000, 1000)) + [30000] * 40
        self.assertEqual(figures.Judge([Life(fills, "memory_kib", seconds=10)], 4), [])
        (said,) = figures.Judge([Life(fills, "memory_kib", seconds=1)], 4)  # no agent needs memory for so few pods
        self.assertIn("memory_kib more", said)
        leaks = [value + 250 * number for number, value in enumerate(fills)]
        (said,) = figures.Judge([Life(leaks, "memory_kib", seconds=10)], 4)
        self.assertIn("memory_kib more", said)

    def test_a_short_life_says_nothing(self):
        self.assertEqual(figures.Judge([Life([20, 40, 60])], 4), [])

    def test_this_process_can_be_looked_at(self):
        look = figures.Look(os.getpid(), "me")
        self.assertGreater(look.memory_kib, 1000)
        self.assertGreaterEqual(look.threads, 1)
        self.assertTrue(0 <= look.age_seconds < 600, look.age_seconds)
        with tempfile.TemporaryFile():
            self.assertEqual(figures.Look(os.getpid(), "me").descriptors, look.descriptors + 1)
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        self.assertIsNone(figures.Look(ended.pid, "gone"))

    def test_more_files_are_found_whatever_their_names(self):
        first = ["gpus/GPU-1/lock", "gpuloom-7b16defe.sock"]
        self.assertEqual(figures.NewFiles(first, ["gpus/GPU-1/lock", "gpuloom-00aa11bb.sock", "agent.leaving"]), [])
        (said,) = figures.NewFiles(first, [*first, "gpuloom-00aa11bb.sock"])
        self.assertIn("1 more of the file gpuloom-….sock", said)


if __name__ == "__main__":
    unittest.main()
