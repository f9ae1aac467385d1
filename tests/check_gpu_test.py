#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_gpu.py on a pack of shell scripts: what passes, fails, hangs and is refused is told apart."""

import contextlib
import io
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

import check_gpu

GPULOOM = """#!/bin/sh
while [ "$1" != -- ]; do [ "$1" = --state-dir ] && state=$2; shift; done
shift
mkdir -p "$state"
cp "{log}" "$state/scheduler.log"
exec "$@"
"""
CONFINED = "gpuloom-executor: confined: no capabilities, own user 2000000000, Landlock version 7\n"


class CheckGpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.log(CONFINED)
        self.script("bin/gpuloom", GPULOOM.format(log=self.root / "log"))
        self.script("tests/programs/vadd_static", "#!/bin/sh\necho equal\n")
        self.script("tests/gpuloom-conformance", "#!/bin/sh\necho '[  PASSED  ] 3 tests.'\n")
        self.script("tests/gpuloom_sharing_test", "#!/bin/sh\nexit 0\n")
        (self.root / ".gpuloom-pack").touch()

    def log(self, text):
        (self.root / "log").write_text(text)

    def script(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def check(self, *arguments):
        """Exit status and report."""
        out = self.root / "out"
        sys.argv = ["check_gpu.py", "--pack", str(self.root), "--out", str(out), "--shards", "2", *arguments]
        with contextlib.redirect_stdout(io.StringIO()):
            status = check_gpu.main()
        return status, (out / "report.md").read_text()

    def testWhatPasses(self):
        status, report = self.check("--stages", "confined,conformance")
        self.assertEqual(0, status, report)
        self.assertEqual(4, report.count("| passed |"), report)
        self.assertIn("Landlock version 7", report)
        self.assertIn("[  PASSED  ] 3 tests.", report)

    def testWhatFails(self):
        self.script("tests/gpuloom-conformance", "#!/bin/sh\n[ $GTEST_SHARD_INDEX = 0 ]\n")
        status, report = self.check("--stages", "conformance")
        self.assertEqual(1, status)
        self.assertIn("| conformance, shard 1 of 2 | passed |", report)
        self.assertIn("| conformance, shard 2 of 2 | failed (1) |", report)

    def testTracesAreTakenWithASchedulerOfTheirOwn(self):
        self.script("tests/gpuloom-bench", "#!/bin/sh\n")
        self.script("tests/trace_check.py", "import os, sys\nstate = sys.argv[sys.argv.index('--state-dir') + 1]\nos.makedirs(state)\n"
                    f"open(state + '/scheduler.log', 'w').write(open('{self.root}/log').read())\nprint('clean: saturated +0.1 %')\n")
        status, report = self.check("--stages", "trace")
        self.assertEqual(0, status, report)
        self.assertIn("clean: saturated +0.1 %", report)
        self.log(CONFINED + "2026-01-01T00:00:00.000Z warning gpuloom-scheduler: executor of domain a was refused system call 29\n")
        shutil.rmtree(self.root / "out")
        status, report = self.check("--stages", "trace")
        self.assertEqual(1, status)
        self.assertIn("system call 29", report)

    def testARefusedCallFailsWhatPassed(self):
        self.log(CONFINED + "2026-01-01T00:00:00.000Z warning gpuloom-scheduler: executor of domain a was refused system call 313\n")
        status, report = self.check("--stages", "conformance")
        self.assertEqual(1, status)
        self.assertEqual(2, report.count("| failed (log) |"), report)
        self.assertIn("system call 313", report)

    def testAnExecutorThatIsNotConfinedFails(self):
        for log in ("", CONFINED + "gpuloom-executor: confined without Landlock: the driver did not start with it\n"):
            self.log(log)
            status, report = self.check("--stages", "confined")
            self.assertEqual(1, status)
            self.assertIn("| a program | failed (log) |", report)

    def testWhatHangsIsCutOffAndTheRestIsNotRun(self):
        self.script("tests/gpuloom-conformance", "#!/bin/sh\nsleep 600\n")
        status, report = self.check("--stages", "conformance,faults", "--budget", "5.5")
        self.assertEqual(1, status)
        self.assertEqual(2, report.count("cut off"), report)
        self.assertIn("| faults | not run |", report)

    def testAMissingPartIsNamed(self):
        os.remove(self.root / "tests/gpuloom-conformance")
        with self.assertRaises(SystemExit) as ended:
            self.check("--stages", "conformance")
        self.assertIn("gpuloom-conformance is missing", str(ended.exception.code))


if __name__ == "__main__":
    unittest.main()
