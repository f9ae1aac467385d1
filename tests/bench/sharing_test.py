#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of what is computed from tenants' windows: shares by kernels × length, errors over seconds, terms."""

import re
import unittest

import alone_lines
import copy_lines
import goals
import inference_lines
import language_lines
import sharing
import sharing_lines
from sharing import Tenant


class SharingTest(unittest.TestCase):
    def test_work_is_kernels_times_length(self):
        work = sharing.busy_us([{"windows": [100, 0]}, {"windows": [1, 2]}], [50, 5000])
        self.assertEqual(work, [[5000, 0], [5000, 10000]])
        self.assertEqual(sharing.shares(work), [0.25, 0.75])
        self.assertEqual(sharing.device_busy(work), 10)

    def test_nothing_done_is_an_error_and_no_share(self):
        with self.assertRaisesRegex(ValueError, "nothing was done"):
            sharing.shares([[0, 0], [0, 0]])

    def test_error_is_the_worst_tenant_s_in_the_worst_second(self):
        even, off = [50.0] * 10, [40.0] * 10
        self.assertEqual(sharing.greatest_error([even * 3, even * 3], [1, 1]), 0)
        self.assertAlmostEqual(sharing.greatest_error([even + off + even, even + [60.0] * 10 + even], [1, 1]), 10)
        self.assertAlmostEqual(sharing.greatest_error([[25.0] * 10, [75.0] * 10], [100, 300]), 0)
        self.assertAlmostEqual(sharing.greatest_error([even, even], [10, 90]), 40)

    def test_what_evens_out_within_a_second_is_no_error(self):
        self.assertEqual(sharing.greatest_error([[100.0, 0.0] * 5, [0.0, 100.0] * 5], [1, 1]), 0)
        self.assertEqual(sharing.greatest_error([[100.0, 0.0] * 5, [0.0, 100.0] * 5], [1, 1], windows=1), 50)

    def test_a_second_in_which_nobody_works_is_an_error(self):
        self.assertEqual(sharing.greatest_error([[1.0] * 10 + [0.0] * 10] * 2, [1, 1]), 100)

    def test_shorter_than_a_second_is_one_span(self):
        self.assertEqual(sharing.greatest_error([[3.0, 3.0], [1.0, 1.0]], [1, 1]), 25)

    def test_spread(self):
        self.assertEqual(sharing.luckiest_to_unluckiest([[10, 10], [5, 20], [8, 8]]), 25 / 16)
        self.assertEqual(sharing.luckiest_to_unluckiest([[1], [0]]), float("inf"))

    def test_settled_with_the_first_window_of_the_new_shares(self):
        work = [[10.0] * 5 + [50.0] + [88.0] * 4, [90.0] * 5 + [50.0] + [12.0] * 4]
        self.assertAlmostEqual(sharing.settled_s(work, [90, 10], 0.45), 0.25)
        self.assertAlmostEqual(sharing.settled_s(work, [90, 10], 0.75), 0.15)
        self.assertIsNone(sharing.settled_s(work, [99, 1], 0.45))
        self.assertIsNone(sharing.settled_s(work, [90, 10], 0.95), "no whole window is left")
        self.assertIsNone(sharing.settled_s([[0.0] * 5] * 2, [1, 1], 0.1))

    def test_only_what_differs_from_the_default_is_said(self):
        self.assertEqual(Tenant().terms(1), [])
        self.assertEqual(Tenant(second_domain=True).terms(1), [])
        self.assertEqual(Tenant(weight=300, priority="low", ceiling_percent=25, second_domain=True).terms(2),
                         ["--weight", "300", "--priority", "low", "--time-share-max", "25%", "--domain", "second"])
        self.assertEqual(Tenant(graph=20, queued=2).work(7),
                         ["--work", "50", "--iterations", "7", "--queued", "2", "--graph", "20"])
        self.assertEqual(Tenant(changing=True).work(7)[-1], "--changing")
        self.assertEqual(Tenant(sm_percent=25).terms(1), ["--sm-percent", "25%"])
        self.assertEqual(Tenant(waves=16).work(7, 132)[-2:], ["--blocks", "2112"])
        self.assertEqual(Tenant(kernel_us=1000, busy_percent=50).work(7),
                         ["--work", "1000", "--iterations", "7", "--busy", "50", "--seed", "1"])


class GoalsTest(unittest.TestCase):
    def met(self, name, ours):
        return goals.goal_of(name).judge(None, ours, None)

    def test_judged_without_what_happens_natively(self):
        for name, good, bad in (("sharing_short_beside_long", (47, 53), (46.9, 53.1)),
                                ("sharing_short_beside_long_domains", (47, 53), (46.9, 53.1)),
                                ("sharing_error_10_90_domains", (0, 3), (3.1, 100)),
                                ("sharing_busy_x4_on_off", (0.98, 1.2), (0.97,)),
                                ("sharing_spread_x40", (1, 1.1), (1.11, float("inf"))),
                                ("sharing_longest_wait", (0, 5100), (5101,)),
                                ("sharing_inference_p99_beside_training", (1, 1.1), (1.11,)),
                                ("sharing_inference_p99_beside_gemm", (1.15,), (1.16,)),
                                ("sharing_training_beside_inference", (0.8, 1), (0.79,)),
                                ("sharing_change", (0.1, 1), (1.1,)),
                                ("sharing_ceiling_25", (23, 25), (22.9, 25.1)),
                                ("sharing_sm_25_beside_70", (23, 27), (22.9, 27.1))):
            for value in good:
                self.assertTrue(self.met(name, value), (name, value))
            for value in bad:
                self.assertFalse(self.met(name, value), (name, value))

    def test_between_domains_a_wait_is_a_figure_only(self):
        self.assertIsNone(goals.goal_of("sharing_longest_wait_domains"))
        self.assertIsNone(goals.goal_of("sharing_busy_x2"))


class PredictionsTest(unittest.TestCase):
    def test_each_executors_word_is_read_and_nothing_else(self):
        line = "gpuloom-executor: {} predictions of what ran alone then were wrong by {} % at the median and by {} % for nine of ten\n"
        self.assertEqual(sharing.predictions("info: begins\n" + line.format(120, 0, 7) + "x\n" + line.format(3, 12, 100)),
                         [(120, 0, 7), (3, 12, 100)])
        self.assertEqual(sharing.predictions("2 predictions\n"), [])

    def test_how_each_executor_launched(self):
        line = "gpuloom-executor: launches in all: chunks {0} replayed, 2 updated, 3 rewritten; 4 by singles, 5 plain\n"
        self.assertEqual(sharing.launches(line.format(1) + "info: ends\n" + line.format(7)),
                         [f"chunks {count} replayed, 2 updated, 3 rewritten; 4 by singles, 5 plain" for count in (1, 7)])


class LinesTest(unittest.TestCase):
    def test_every_row_has_one_line_and_every_goal_a_row(self):
        lines = sharing_lines.lines(full=True)
        rows = [row for line in lines for row in line.rows()]
        self.assertEqual(len(rows), len(set(rows)))
        for row in rows:
            self.assertTrue(row.startswith("sharing_"), row)
        rows += [*map(alone_lines.row, (*alone_lines.CALLS, *alone_lines.PROGRAMS)), *inference_lines.ROWS, *language_lines.rows(),
                 *copy_lines.rows()]
        judged = [row for row in rows if goals.goal_of(row)]
        for pattern, _ in goals.GOALS:
            if pattern.startswith("sharing_"):
                self.assertTrue(any(re.fullmatch(pattern, row) for row in judged), pattern)

    def test_two_domains_part_the_first_from_the_others(self):
        for line in sharing_lines.lines(full=True):
            in_second = [tenant.second_domain for tenant in line.tenants]
            self.assertEqual(in_second, [False] + [True] * (len(in_second) - 1) if 2 in line.domains else
                             [False] * len(in_second))

    def test_forty_are_forty_where_there_is_a_gpu(self):
        self.assertEqual(max(len(line.tenants) for line in sharing_lines.lines(full=True)), 40)
        self.assertLess(max(len(line.tenants) for line in sharing_lines.lines(full=False)), 5)


if __name__ == "__main__":
    unittest.main()
