#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""limits.py finds what is wrong in a page and a file that are made for it."""

import pathlib
import tempfile
import unittest

import limits

HEADER = """
inline constexpr uint32_t kMaxThings = 1u << 16;  // of a session
static constexpr uint64_t kMaxBytes =
    uint64_t{1} << 20;
inline constexpr std::chrono::milliseconds kWait{100};
inline constexpr uint64_t kMaxOther = 1'000;
inline constexpr uint32_t kMaxSum = kMaxThings * 2;
"""
ROWS = ["| things | 65,536 | session | count | told | why | `kMaxThings` in `proto/wire/a.h` |",
        "| bytes | 1 MiB | session | count | told | why | `kMaxBytes` in `proto/wire/a.h` |",
        "| time | 100 ms, then less | session | count | told | why | `kWait` in `proto/wire/a.h` |"]
OTHERS = limits.LAST + "\n\n`kMaxOther` and `kMaxSum`"


class Limits(unittest.TestCase):
    def Wrong(self, rows, others=OTHERS):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "proto/wire").mkdir(parents=True)
            (root / "proto/wire/a.h").write_text(HEADER)
            (root / "docs/design").mkdir(parents=True)
            (root / limits.PAGE).write_text("\n".join(rows) + "\n\n" + others)
            return limits.Check(root)

    def test_a_true_page_is_accepted(self):
        self.assertEqual(self.Wrong(ROWS), [])

    def test_a_wrong_number_is_found(self):
        for right, wrong in [("65,536", "65,535"), ("1 MiB", "1 GiB"), ("100 ms", "100 s")]:
            found = self.Wrong([row.replace(right, wrong) for row in ROWS])
            self.assertEqual(len(found), 1, found)
            self.assertIn(wrong, found[0])

    def test_a_limit_without_a_row_is_found(self):
        self.assertIn("kMaxThings of proto/wire/a.h has no row", self.Wrong(ROWS[1:])[0])
        self.assertIn("kMaxOther", self.Wrong(ROWS, limits.LAST + " `kMaxSum`")[0])

    def test_a_row_of_nothing_is_found(self):
        self.assertIn("no constant kGone", self.Wrong(ROWS + [ROWS[0].replace("kMaxThings", "kGone")])[0])
        self.assertIn("there is no proto/wire/b.h", self.Wrong(ROWS + [ROWS[0].replace("a.h", "b.h")])[0])
        self.assertIn("a row begins", self.Wrong(ROWS + [ROWS[0].replace("65,536", "some")])[0])
        self.assertIn("plain arithmetic", self.Wrong(ROWS + [ROWS[0].replace("kMaxThings", "kMaxSum")])[0])


if __name__ == "__main__":
    unittest.main()
