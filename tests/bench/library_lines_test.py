#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of finding fatbins in the bytes of a library."""

import struct
import unittest

import library_lines


def fatbin(body):
    return struct.pack("<IHHQ", library_lines.MAGIC, 1, 16, len(body)) + body


class FatbinsTest(unittest.TestCase):
    def test_found_where_they_are(self):
        one, two = fatbin(b"x" * 40), fatbin(b"y" * 8)
        data = b"\x7fELF..." + one + b"\0" * 5 + two
        self.assertEqual(list(library_lines.fatbins(data)), [(7, len(one)), (12 + len(one), len(two))])

    def test_bytes_that_only_look_like_one(self):
        self.assertEqual(list(library_lines.fatbins(fatbin(b"x" * 40)[:-1])), [])  # longer than what is there
        self.assertEqual(list(library_lines.fatbins(struct.pack("<IHHQ", library_lines.MAGIC, 9, 16, 0))), [])
        self.assertEqual(list(library_lines.fatbins(struct.pack("<I", library_lines.MAGIC))), [])


if __name__ == "__main__":
    unittest.main()
