#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of starting and ending MPS, with a control program of our own that behaves as NVIDIA's."""

import os
import pathlib
import signal
import tempfile
import time
import unittest
from unittest import mock

import mps

# Writes down what it is asked; with -d leaves a daemon behind that keeps its output open, as the real one may.
CONTROL = """#!/bin/sh
echo "$@" "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_VISIBLE_DEVICES" $([ "$1" = -d ] || cat) >> {record}
if [ "$1" = -d ]; then echo {said}; sleep 600 & echo $! >> {record}.daemons; fi
exit {status}
"""


class MpsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.record = self.folder / "record"
        path = mock.patch.dict(os.environ, {"PATH": f"{folder.name}:{os.environ['PATH']}"})
        path.start()
        self.addCleanup(path.stop)
        self.addCleanup(self.end_daemons)

    def end_daemons(self):
        daemons = self.folder / "record.daemons"
        for pid in daemons.read_text().split() if daemons.exists() else []:
            os.kill(int(pid), signal.SIGKILL)

    def control(self, status=0, said=""):
        program = self.folder / mps.PROGRAM
        program.write_text(CONTROL.format(record=self.record, status=status, said=said))
        program.chmod(0o755)

    def test_started_in_a_folder_of_its_own_and_asked_to_quit(self):
        self.control()
        before_s = time.monotonic()
        with mps.Mps(3) as one:
            pipe = one.environment["CUDA_MPS_PIPE_DIRECTORY"]
            self.assertTrue(pathlib.Path(pipe).is_dir())
        self.assertLess(time.monotonic() - before_s, 300)
        self.assertEqual(self.record.read_text().split("\n"), [f"-d {pipe} 3", f"{pipe} 3 quit -t 5", ""])
        self.assertFalse(pathlib.Path(pipe).exists())

    def test_one_that_does_not_start_is_missing_with_its_reason(self):
        self.control(status=1, said="An instance of this daemon is already running")
        with mps.Mps(0) as one:
            self.assertIsNone(one.environment)
            self.assertIn("already running", one.missing)
        self.assertNotIn("quit", self.record.read_text())

    def test_none_here(self):
        with mock.patch.object(mps, "PROGRAM", "nvidia-cuda-no-such-program"), mps.Mps(0) as one:
            self.assertIsNone(one.environment)
            self.assertIn("not on this machine", one.missing)


if __name__ == "__main__":
    unittest.main()
