#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests cases.py and xla_flags.py: what the runner reads of a program, what JAX is told."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent

PROGRAM = """
from cases import Skip, case, expect, hash_of, losses, main, need, note

@case("right")
def _():
    note("seen")
    return 0.1 + 0.2

@case("wrong")
def _():
    expect(False, "not so\\nat all")

@case("missing")
def _():
    need("no_such_module")

@case("hash")
def _():
    return hash_of([1, 2.5, "x"], True), losses([1, 2])

if __name__ == "__main__":
    main()
"""


class Cases(unittest.TestCase):
    def run_program(self, text, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program.py")
            path.write_text(text)
            done = subprocess.run([sys.executable, str(path), *arguments], capture_output=True, text=True, timeout=60,
                                  env={"PYTHONPATH": str(HERE)}, check=False)
        return done.returncode, [line.split("\t") for line in done.stdout.splitlines()]

    def test_each_case_has_a_line(self):
        status, lines = self.run_program(PROGRAM)
        self.assertEqual(status, 1)
        self.assertEqual([line[:2] for line in lines[:4]],
                         [["right", "ok"], ["wrong", "failed"], ["missing", "skipped"], ["hash", "ok"]])
        self.assertEqual(lines[0][2], "0.30000000000000004")
        self.assertEqual(lines[0][4], "seen")
        self.assertEqual(lines[1][2:3] + lines[1][4:], ["AssertionError", "not so at all"])
        self.assertTrue(all(len(line) == 5 for line in lines[:4]))
        self.assertEqual(lines[4][0], "process")

    def test_only_the_named_ones(self):
        status, lines = self.run_program(PROGRAM, "right")
        self.assertEqual((status, [line[0] for line in lines]), (0, ["right", "process"]))

    def test_hashes_follow_the_bytes(self):
        self.assertEqual(self.run_program(PROGRAM, "hash")[1][0][2], self.run_program(PROGRAM, "hash")[1][0][2])
        self.assertNotEqual(self.run_program(PROGRAM, "hash")[1][0][2],
                            self.run_program(PROGRAM.replace("2.5", "2.6"), "hash")[1][0][2])

    def test_open_devices_are_named(self):
        # No such device is here, so a link to one is looked at instead of an open file.
        text = "import cases, os\nreal = os.readlink\nos.readlink = lambda p: '/dev/nvidia0'\ncases.main()\n"
        self.assertEqual(self.run_program(text)[1], [["process", "/dev/nvidia0", "none"]])


class Programs(unittest.TestCase):
    def test_every_program_is_python(self):
        for path in HERE.glob("*.py"):
            compile(path.read_text(), str(path), "exec")


class XlaFlags(unittest.TestCase):
    def test_kinds(self):
        sys.path.insert(0, str(HERE))
        from xla_flags import KINDS, UNROLL, xla_flags
        convolution = "--xla_gpu_enable_command_buffer=CONVOLUTION"
        self.assertNotIn("command_buffer", xla_flags(""))
        self.assertTrue(xla_flags("none").endswith(" --xla_gpu_enable_command_buffer="))
        self.assertTrue(xla_flags("WHILE,FUSION").endswith(" --xla_gpu_enable_command_buffer=WHILE,FUSION"))
        # What the version does not know is left out.
        self.assertTrue(xla_flags("every", lambda asked: []).endswith("=" + ",".join(KINDS)))
        every = xla_flags("every", lambda asked: [convolution])
        self.assertTrue(every.endswith("=" + ",".join((*KINDS, "CONVOLUTION"))))
        self.assertNotIn(UNROLL, every)
        self.assertIn(UNROLL, xla_flags("unrolled", lambda asked: [flag for flag in asked if flag == UNROLL]))


if __name__ == "__main__":
    unittest.main()
