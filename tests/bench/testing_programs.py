# SPDX-License-Identifier: Apache-2.0
"""For tests of lines about programs: a program that needs no GPU, whose steps sleep for 10 ms, and a gpuloom that only
runs it and writes down how it was asked."""

import pathlib
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
    BEFORE_TENANT = ""  # lines of shell, before a tenant's command

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / "program.py"
        self.program.write_text(PROGRAM.format(here=str(HERE)))
        self.gpuloom = self.folder / "gpuloom"  # gpuloom run … -- command
        self.gpuloom.write_text(f'#!/bin/sh\necho "$@" >> {self.folder}/tenants\n'
                                f'while [ "$1" != -- ]; do shift; done; shift\n{self.BEFORE_TENANT}exec "$@"\n')
        self.gpuloom.chmod(0o755)

    def command(self, name):
        return [sys.executable, str(self.program), name]

    def tenants(self):
        """The arguments of each gpuloom run."""
        return (self.folder / "tenants").read_text().splitlines()

    def quiet_run(self, **options):
        """A run.Run without a GPU, with these options beside those that every run has."""
        every = dict(softgpu=True, only=[], skip=[], budget=None, warm_s=0.01, prepare_s=0, gpu=0)
        sides = Sides("bench", "libcuda.so.1", str(self.gpuloom), [], self.folder / "state", None)
        one = run.Run(SimpleNamespace(**{**every, **options}), sides)
        one.say = lambda text: None
        return one

    def results_of(self, measure, command=None):
        one = self.quiet_run(rounds=1, inference_s=0.3, language_s=0.1)
        measure(one, command or self.command)
        return one.results
