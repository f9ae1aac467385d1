#!/usr/bin/env python3
"""Tests of the table: goals are judged on medians, and what failed is seen to have failed."""

import unittest

import table


class TableTest(unittest.TestCase):
    def results(self, name, unit, native, ours):
        results = table.Results()
        for value in native:
            results.add(name, "native", unit, value)
        for value in ours:
            results.add(name, "gpuloom", unit, value)
        return results

    def met(self, *line):
        return table.row(self.results(*line), line[0], True).rstrip(" |").split("|")[-1].strip()

    def test_absolute_goal_takes_the_median_round(self):
        self.assertEqual(self.met("launch_call", "ns", [3000], [250, 290, 900]), "yes")
        self.assertEqual(self.met("launch_call", "ns", [3000], [250, 310, 320]), "**no**")

    def test_relative_goals_need_the_native_figure(self):
        self.assertEqual(self.met("launch_sync", "ns", [8000], [9999]), "yes")
        self.assertEqual(self.met("launch_sync", "ns", [8000], [10001]), "**no**")
        self.assertEqual(self.met("launch_sync", "ns", [], [10]), "**no**")

    def test_pinned_copies_share_a_goal_and_pageable_ones_have_none(self):
        self.assertEqual(self.met("copy_d2h_pinned_16MiB", "GB/s", [50], [47.6]), "yes")
        self.assertEqual(self.met("copy_h2d_pinned_64KiB_queued", "GB/s", [50], [47.4]), "**no**")
        self.assertEqual(self.met("copy_h2d_pageable_16MiB", "GB/s", [50], [1]), "–")

    def test_unjudged_table_shows_goals_only(self):
        text = table.markdown([], self.results("launch_call", "ns", [1], [1000]), judged=False)
        self.assertIn("≤ 300 ns | – |", text)

    def test_failed_line_is_in_the_table_and_explained(self):
        results = self.results("event_query", "ns", [200], [])
        results.add_error("event_query", "gpuloom", "cuEventQuery: CUDA_ERROR_NOT_SUPPORTED (801)")
        text = table.markdown([("GPU", "one")], results)
        self.assertTrue(results.failed())
        self.assertIn("| failed |", text)
        self.assertIn("- event_query, gpuloom: cuEventQuery", text)

    def test_numbers(self):
        self.assertEqual([table.number(value) for value in (None, 0.1824, 54.321, 286345.2, 0.00001, 0)],
                         ["–", "0.182", "54.3", "286345", "0.00001", "0"])


if __name__ == "__main__":
    unittest.main()
