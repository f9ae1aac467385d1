#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of what the benchmark of the policy file's changes makes of its windows; no process."""

import unittest

import policy_change


def windows(*shares_of_first):
    """Two pods' kernels in each window, by the first one's part of a hundred."""
    return [list(shares_of_first), [100 - share for share in shares_of_first]]


class SettledTest(unittest.TestCase):
    def settled(self, work, changed_s):
        return [None if one is None else round(one, 3) for one in policy_change.settled(work, changed_s)]

    def test_counts_to_the_end_of_the_first_whole_window_with_the_new_shares(self):
        work = windows(25, 25, 25, 25, 40, 75, 75, 75)
        self.assertEqual(self.settled(work, [0.25]), [0.35])
        self.assertEqual(self.settled(work, [0.5]), [0.1])

    def test_each_change_has_its_own_weights_and_ends_with_the_next(self):
        work = windows(*[25] * 10, *[75] * 10, *[25] * 10)
        self.assertEqual(self.settled(work, [0.95, 1.95]), [0.15, 0.15])
        self.assertEqual(self.settled(windows(*[25] * 20, *[75] * 10), [0.95, 1.95]), [None, None])

    def test_the_policy_names_both_namespaces(self):
        self.assertEqual(policy_change.policy(policy_change.weights_after(1)),
                         "namespaces:\n  team-a: {weight: 300}\n  team-b: {weight: 100}\n")


if __name__ == "__main__":
    unittest.main()
