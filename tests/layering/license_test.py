#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""license.py, over a small repository: what it asks for, and where it puts the line."""

import pathlib
import tempfile
import unittest

import license as checker

LINE = checker.LINE
TOML = f'# {LINE}\nversion = 1\n[[annotations]]\npath = ["**.json", "data/*"]\n[[annotations]]\npath = "made/**.txt"\n'


class License(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.Write("REUSE.toml", TOML)

    def Write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def Fixed(self, name, text):
        self.Write(name, text)
        self.assertNotEqual(checker.Check(self.root), [])
        self.assertEqual(checker.Check(self.root, fix=True), [])
        self.assertEqual(checker.Check(self.root), [])
        fixed = (self.root / name).read_text()
        checker.Check(self.root, fix=True)
        self.assertEqual((self.root / name).read_text(), fixed)  # once is enough
        return fixed

    def test_the_line_is_the_first(self):
        self.assertEqual(self.Fixed("a.h", "// A.\n#pragma once\n"), f"// {LINE}\n// A.\n#pragma once\n")
        self.assertEqual(self.Fixed("CMakeLists.txt", "# A.\n"), f"# {LINE}\n# A.\n")
        self.assertEqual(self.Fixed("empty.py", ""), f"# {LINE}\n")

    def test_or_the_second(self):
        self.assertEqual(self.Fixed("run.sh", "#!/bin/sh\nx\n"), f"#!/bin/sh\n# {LINE}\nx\n")
        self.assertEqual(self.Fixed("program", "#!/usr/bin/env python3\n"), f"#!/usr/bin/env python3\n# {LINE}\n")
        self.assertEqual(self.Fixed("Dockerfile", "# syntax=x\n# A.\n"), f"# syntax=x\n# {LINE}\n# A.\n")

    def test_a_line_far_below_does_not_count(self):
        self.assertTrue(self.Fixed("a.cc", f"\n\n\n// {LINE}\n").startswith(f"// {LINE}\n"))

    def test_what_reuse_toml_speaks_for_is_left_alone(self):
        for name in ("a.json", "deep/er/a.json", "data/a.h", "made/a/b.txt"):
            self.Write(name, "{}")
        self.assertEqual(checker.Check(self.root, fix=True), [])
        self.assertEqual((self.root / "data/a.h").read_text(), "{}")

    def test_what_can_have_no_line_must_be_spoken_for(self):
        for name in ("a.bin", "data/deeper/a.bin", "a.txt"):
            self.Write(name, "x")
            (offence,) = checker.Check(self.root, fix=True)
            self.assertIn(f"{name}: a row of REUSE.toml", offence)
            (self.root / name).unlink()


if __name__ == "__main__":
    unittest.main()
