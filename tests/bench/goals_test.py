#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that docs/benchmarks.md shows of each figure the goal that goals.py has, and what follows from the figure."""

import pathlib
import re
import unittest

import goals

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/benchmarks.md"
MET = {"yes": True, "**no**": False}


def tables(text):
    """The rows of each table of the page's figures, by heading."""
    heading = None
    for line in text.split("\n## Figures\n")[1].split("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else None
        if cells is None:
            heading = None
        elif heading is None:
            heading = cells
        elif "goal" in heading and set(cells[0]) != {"-", " "}:
            if not set("".join(cells)) <= set("-: "):
                yield dict(zip(heading, cells))


def names(cell):
    """`copy_a_512MiB`, `_part`: the second stands for one that begins like the first; only whole names are given back."""
    return [name for name in re.findall(r"`([^`]+)`", cell) if re.fullmatch(r"[a-z][A-Za-z0-9_]*[A-Za-z0-9]", name)]


def pattern_of(word):
    """copy_{h2d,d2h}_pinned_… as a regular expression."""
    return re.sub(r"{([^}]*)}", lambda braces: f"({braces[1].replace(',', '|')})", word).replace("…", ".*")


def figure(cell):
    """None where a cell is not one number."""
    return float(cell) if re.fullmatch(r"\d+(\.\d+)?", cell) else None


class PageTest(unittest.TestCase):
    def setUp(self):
        self.rows = list(tables(PAGE.read_text(encoding="utf-8")))
        self.assertGreater(len(self.rows), 100)

    def test_every_row_shows_its_line_s_goal(self):
        for row in self.rows:
            for name in names(row["line"]):
                goal = goals.goal_of(name)
                with self.subTest(name):
                    self.assertEqual(row["goal"].replace("µs", "us"), goal.words if goal else "–")
                    self.assertEqual(row["met"] == "–", goal is None)

    def test_a_row_of_single_figures_says_truly_whether_they_meet_it(self):
        judged = 0
        for row in self.rows:
            name, ours = names(row["line"])[0], figure(row["gpuloom"])
            goal = goals.goal_of(name)
            if goal is None or ours is None or row["met"] not in MET or "unit" not in row:
                continue
            native, mps = figure(row["native"]), figure(row["MPS"])
            with self.subTest(name):
                judged += 1
                self.assertEqual(goal.judge(native, ours, mps), MET[row["met"]])
        self.assertGreater(judged, 60)

    def test_what_misses_its_goal_is_explained(self):
        lines = PAGE.read_text(encoding="utf-8").split("\n## What misses its goal\n")[1].split("\n## ")[0].splitlines()
        explained = [pattern_of(word) for line in lines if line.startswith("|") for word in re.findall(r"`([^`]+)`", line.split("|")[1])]
        for row in self.rows:
            if row["met"] == "**no**":
                name = names(row["line"])[0]
                self.assertTrue(any(re.fullmatch(pattern, name) for pattern in explained), name)


if __name__ == "__main__":
    unittest.main()
