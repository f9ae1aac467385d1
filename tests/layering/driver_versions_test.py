#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests driver_versions.py."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import driver_versions  # noqa: E402

TABLE = """\
PROC_ADDRESS(cuOld, 12000, false, cuOld, PFN_cuOld_v12000)
PROC_ADDRESS(cuNew, 12040, false, cuNew, PFN_cuNew_v12040)
"""


class DriverVersions(unittest.TestCase):

    def OffencesOf(self, text, name="agent/executor/module/kernel.cc"):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path, content in (("proto/cuda/proc_address.def", TABLE),
                                  ("proto/cuda/driver_version.h", "inline constexpr int kOldestDriverVersion = 12020;\n"),
                                  (name, text)):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(content)
            return list(driver_versions.Offences(root))

    def testACallThatNobodyAskedFor(self):
        self.assertEqual(self.OffencesOf("\ncuda.cuNew(1);\n"), [
            "agent/executor/module/kernel.cc:2: cuNew is of CUDA 12.4; compare it with nullptr before, older drivers lack it"])
        self.assertEqual(len(self.OffencesOf("device->cuNew(1);", "agent/scheduler/device.cc")), 1)

    def testWhatIsAllowed(self):
        self.assertEqual(self.OffencesOf("if (cuda.cuNew != nullptr) cuda.cuNew(1);"), [])
        self.assertEqual(self.OffencesOf("cuda.cuOld(1); cuda.cuOurs(2);"), [])
        self.assertEqual(self.OffencesOf("cuda.cuNew(1);", "agent/executor/module/kernel_test.cc"), [])
        self.assertEqual(self.OffencesOf("cuda.cuNew(1);", "agent/executor/testing/driver.cc"), [])


if __name__ == "__main__":
    unittest.main()
