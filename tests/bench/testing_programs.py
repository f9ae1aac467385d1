# SPDX-License-Identifier: Apache-2.0
"""For tests of lines about programs: a program that needs no GPU, whose steps sleep for 10 ms, and a gpuloom that only
runs it and writes down how it was asked."""

import pathlib
import stat
import sys
import tempfile
import unittest
from types import SimpleNamespace

import run
from processes import Sides

HERE = pathlib.Path(__file__).resolve().parent

PROGRAM = """
import sys, time
sys.path.insert(0, {here!r})
import loop

class Sleep:
    def issue(self):
        return 0
    def finish(self, _):
        time.sleep(0.01)
    def check(self):
        return "right"
    def device_s(self, steps):
        return 0.004

sys.exit(loop.main(dict.fromkeys(sys.argv[1:], Sleep)))
"""


class ProgramsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / "program.py"
        self.program.write_text(PROGRAM.format(here=str(HERE)))
        gpuloom = self.folder / "gpuloom"  # gpuloom run … -- command
        gpuloom.write_text(f'#!/bin/sh\necho "$@" >> {self.folder}/tenants\n'
                           'while [ "$1" != -- ]; do shift; done; shift\nexec "$@"\n')
        gpuloom.chmod(gpuloom.stat().st_mode | stat.S_IXUSR)
        self.gpuloom = str(gpuloom)

    def command(self, name):
        return [sys.executable, str(self.program), name]

    def tenants(self):
        """The arguments of each gpuloom run."""
        return (self.folder / "tenants").read_text().splitlines()

    def results_of(self, measure, command=None):
        options = SimpleNamespace(softgpu=True, only=[], skip=[], budget=None, rounds=1, inference_s=0.3, language_s=0.1,
                                  warm_s=0.01, prepare_s=0, gpu=0)
        sides = Sides("bench", "libcuda.so.1", self.gpuloom, ["--state-dir", str(self.folder)], None)
        one = run.Run(options, sides, str(self.folder))
        one.say = lambda text: None
        measure(one, command or self.command)
        return one.results
