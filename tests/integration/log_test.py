#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is logged by an agent, its scheduler and its executors, as it was configured: as objects of JSON, from the level that was
asked for; and everything, from all of them, between SIGUSR1 and SIGHUP.

usage: log_test.py BUILD_FOLDER
"""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(ROOT / "deploy"))
import demo  # noqa: E402

PATIENCE = 120
PROGRAMS = {"gpuloom-agent", "gpuloom-scheduler", "gpuloom-executor"}
TENANT = ROOT / "tests/frameworks/driver_ctypes.py"
ENVIRONMENT = dict(os.environ, GPULOOM_SOFTGPU_DEVICES="1", GPULOOM_SOFTGPU_MEMORY="1GiB", GPULOOM_SOFTGPU_QUIET="1")


class Log(unittest.TestCase):
    def setUp(self):
        ctypes.CDLL(None, use_errno=True).prctl(demo.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.state = pathlib.Path(tempfile.mkdtemp(prefix="gpuloom-log-"))
        self.addCleanup(shutil.rmtree, self.state)
        self.addCleanup(self.EndEverything)

    def EndEverything(self):
        for pid in demo.Descendants():
            os.kill(pid, signal.SIGKILL)
        self.agent.wait()
        demo.WaitUntilAlone(PATIENCE)

    def Start(self, *arguments):
        """An agent that runs its schedulers; its log is a file."""
        with open(self.state / "agent.log", "wb") as log:
            self.agent = subprocess.Popen([BUILD / "bin/gpuloom-agent", "--schedulers=only", "--state-dir", self.state, "--softgpu",
                                           BUILD / "lib/softgpu/libcuda.so.1", *arguments], stderr=log, env=ENVIRONMENT)
        self.Until(lambda: list(self.state.glob("gpus/*/control.sock")), "no scheduler listens")
        (socket,) = self.state.glob("gpus/*/control.sock")
        self.scheduler = socket.parent

    def Until(self, condition, complaint):
        begin = time.monotonic()
        while not condition():
            self.assertIsNone(self.agent.poll(), self.Text())
            self.assertLess(time.monotonic() - begin, PATIENCE, f"{complaint}:\n{self.Text()}")
            time.sleep(0.02)

    def Tenant(self, domain):
        ran = subprocess.run([BUILD / "bin/gpuloom", "run", "--softgpu", "--state-dir", self.scheduler, "--domain", domain, "--",
                              sys.executable, TENANT], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=PATIENCE)
        self.assertIn("launch\tok", ran.stdout, ran.stderr)

    def Text(self):
        paths = [self.state / "agent.log", *self.state.glob("gpus/*/scheduler.log")]
        return "".join(path.read_text() for path in paths)

    def Lines(self):
        """Every line, as an object."""
        text = self.Text()
        return [json.loads(line) for line in text[:text.rfind("\n")].splitlines()]

    def Said(self, words):
        return {line["program"] for line in self.Lines() if words in line["message"]}

    def Debug(self):
        return [line for line in self.Lines() if line["level"] == "debug"]

    def test_all_follow_the_format_and_the_signals(self):
        self.Start("--log-format=json")
        self.Tenant("before")
        for line in self.Lines():
            self.assertEqual(list(line), ["time", "level", "program", "message"])
            self.assertRegex(line["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ$")
            self.assertIn(line["level"], ("error", "warning", "info"))
        self.assertEqual({line["program"] for line in self.Lines()}, PROGRAMS)

        self.agent.send_signal(signal.SIGUSR1)
        # Executors that run, and those that are started afterwards.
        self.Until(lambda: self.Said("everything from now on") == PROGRAMS, "not all log everything")
        self.Tenant("meanwhile")
        self.Until(lambda: any(line["program"] == "gpuloom-executor" for line in self.Debug()), "nothing more is logged")

        def AllAreAsBefore():  # said again and again, because there may be no executor at the moment
            self.agent.send_signal(signal.SIGHUP)
            return self.Said("again from the level") == PROGRAMS
        self.Until(AllAreAsBefore, "not all are as before")
        before = len(self.Debug())
        self.Tenant("after")
        self.assertEqual(len(self.Debug()), before)

    def test_all_keep_to_the_level(self):
        self.Start("--log-level=error", "--log-format=text")
        self.Tenant("quiet")
        self.assertEqual(self.Text(), "")


if __name__ == "__main__":
    unittest.main()
