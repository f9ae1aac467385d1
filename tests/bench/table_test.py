#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tables: goals are judged on medians, and what failed is seen to have failed."""

import unittest

import table


class TableTest(unittest.TestCase):
    def results(self, name, unit, native, ours, mps=()):
        results = table.Results()
        for side, values in (("native", native), ("gpuloom", ours), ("mps", mps)):
            for value in values:
                results.add(name, side, unit, value)
        return results

    def met(self, *line):
        return table.row(self.results(*line), line[0], True, False).rstrip(" |").split("|")[-1].strip()

    def test_absolute_goal_takes_the_median_round(self):
        self.assertEqual(self.met("launch_call", "ns", [3000], [100, 140, 900]), "yes")
        self.assertEqual(self.met("launch_call", "ns", [3000], [100, 151, 152]), "**no**")
        self.assertEqual(self.met("launch_call", "ns", [2000], [101]), "**no**")

    def test_relative_goals_need_the_native_figure(self):
        self.assertEqual(self.met("launch_sync", "ns", [8000], [7200]), "yes")
        self.assertEqual(self.met("launch_sync", "ns", [8000], [7201]), "**no**")
        self.assertEqual(self.met("launch_sync", "ns", [], [10]), "**no**")
        self.assertEqual(self.met("wait_1ms", "us", [6], [11]), "yes")
        self.assertEqual(self.met("wait_1ms", "us", [6], [11.1]), "**no**")
        self.assertEqual(self.met("resnet50_b1", "steps/s", [100], [124]), "**no**")
        self.assertEqual(self.met("resnet50_b1", "steps/s", [100], [125]), "yes")

    def test_one_line_s_goal_is_not_another_s_that_begins_alike(self):
        self.assertEqual(self.met("launch_sustained_changing", "launches/s", [100], [130]), "yes")
        self.assertEqual(self.met("launch_sustained", "launches/s", [100], [130]), "**no**")
        self.assertEqual(self.met("resnet50_b1_x2", "steps/s", [100], [1]), "–")

    def test_several_tenants_are_judged_against_mps_where_there_is_one(self):
        self.assertEqual(self.met("resnet50_b1_x4", "steps/s", [100], [150], [125]), "yes")
        self.assertEqual(self.met("resnet50_b1_x4", "steps/s", [100], [150], [126]), "**no**")
        self.assertEqual(self.met("resnet50_b1_x4", "steps/s", [100], [149], [1]), "**no**")
        self.assertEqual(self.met("resnet50_b1_x4", "steps/s", [100], [150]), "yes")

    def test_copies_have_goals_by_kind_and_size(self):
        self.assertEqual(self.met("copy_d2h_pinned_16MiB", "GB/s", [50], [49.1]), "yes")
        self.assertEqual(self.met("copy_h2d_pinned_64KiB_queued", "GB/s", [50], [48.9]), "**no**")
        self.assertEqual(self.met("copy_h2d_pageable_64KiB", "GB/s", [5], [5]), "yes")
        self.assertEqual(self.met("copy_h2d_pageable_16MiB", "GB/s", [5], [5.9]), "**no**")
        self.assertEqual(self.met("copy_h2d_registered_512MiB", "GB/s", [50], [47.4]), "**no**")
        self.assertEqual(self.met("copy_h2d_registered_shared_512MiB", "GB/s", [50], [20]), "yes")
        self.assertEqual(self.met("copy_h2d_registered_shared_call", "us", [5], [51]), "**no**")
        self.assertEqual(self.met("copy_h2d_pageable_4KiB", "GB/s", [5], [1]), "**no**")

    def test_unjudged_table_shows_goals_only(self):
        text = table.markdown([], self.results("launch_call", "ns", [1], [1000]), judged=False)
        self.assertIn("≤ 150 ns and ≤ 5 % of native | – |", text)

    def test_failed_line_is_in_the_table_and_explained(self):
        results = self.results("event_query", "ns", [200], [])
        results.add_error("event_query", "gpuloom", "cuEventQuery: CUDA_ERROR_NOT_SUPPORTED (801)")
        text = table.markdown([("GPU", "one")], results)
        self.assertTrue(results.failed())
        self.assertIn("| failed |", text)
        self.assertIn("- event_query, gpuloom: cuEventQuery", text)

    def test_programs_have_a_table_of_their_processes(self):
        results = self.results("gemm_4096_x2", "steps/s", [10, 12], [20], [15])
        for rates in ([4, 6], [5, 7], [3, 8]):
            results.add_detail("gemm_4096_x2", "native", "rates", rates)
        results.set_fact("gemm_4096_x2", "native", "results", "same")
        text = table.markdown([], results)
        self.assertIn("| gemm_4096_x2 | native | 4 … 7 | – | – | – | – | – | – | same |", text)
        self.assertIn("| gemm_4096_x2 | steps/s | 11.0 | 20.0 | 1.82 | 15.0 | 1.33 | 10.0 … 12.0 | 20.0 … 20.0 "
                      "| 15.0 … 15.0 | – | – |", text)
        columns = {line.count("|") for line in text.splitlines() if "MPS" in line or line.startswith("| gemm_4096_x2 | st")}
        self.assertEqual(len(columns), 1)

    def test_numbers(self):
        self.assertEqual([table.number(value) for value in (None, 0.1824, 54.321, 286345.2, 0.00001, 0)],
                         ["–", "0.182", "54.3", "286345", "0.00001", "0"])


if __name__ == "__main__":
    unittest.main()
