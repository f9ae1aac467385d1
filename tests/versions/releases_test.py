#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every release that is recorded is in the history, and can be taken from it. usage: releases_test.py"""

import pathlib
import re
import tempfile
import unittest

import releases


def Numbers(version):
    return tuple(map(int, version.split(".")))


class Releases(unittest.TestCase):
    def test_the_newest_is_first_and_none_is_later_than_the_tree(self):
        recorded = [Numbers(release["version"]) for release in releases.Releases()]
        self.assertTrue(recorded)
        self.assertEqual(recorded, sorted(set(recorded), reverse=True))
        self.assertLessEqual(recorded[0], Numbers(releases.TreesVersion()))

    def test_the_changelog_tells_of_each(self):
        changes = re.findall(r"^## (\S+)$", (releases.ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
        for release in releases.Releases():
            self.assertIn(release["version"], changes)

    def test_their_commits_are_in_the_history(self):
        self.SkipWithoutHistory()
        for release in releases.Releases():
            self.assertRegex(release["commit"], r"^[0-9a-f]{40}$")
            self.assertEqual(releases.VersionAt(release["commit"]), release["version"])
            ancestor = releases.Git("merge-base", "--is-ancestor", release["commit"], "HEAD")
            self.assertEqual(ancestor.returncode, 0, f"{release['version']} is on another branch")

    def test_each_can_be_taken(self):
        self.SkipWithoutHistory()
        for release in releases.Releases():
            with tempfile.TemporaryDirectory() as parent:
                folder = pathlib.Path(parent, "sources")
                releases.Take(folder, release["version"])
                self.assertEqual(releases.VersionIn((folder / "CMakeLists.txt").read_text()), release["version"])

    def SkipWithoutHistory(self):
        shallow = releases.Git("rev-parse", "--is-shallow-repository")
        if shallow.returncode:
            self.skipTest("this is no git repository: its history is not here")
        if shallow.stdout.strip() == "true":
            self.skipTest("this clone is shallow: git fetch --unshallow")


if __name__ == "__main__":
    unittest.main()
