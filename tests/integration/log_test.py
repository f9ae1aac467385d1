#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is logged by an agent, its scheduler and its executors, as it was configured: as objects of JSON, from the level that was
asked for, with what gRPC says; and everything, from all of them, between SIGUSR1 and SIGHUP.

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
# Holds a context, and so its executor, until its input ends.
STAYING_TENANT = """
import ctypes, sys
cuda, device, context = ctypes.CDLL("libcuda.so"), ctypes.c_int(), ctypes.c_void_p()
for status in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)):
    assert status == 0, status
print("holds a context", flush=True)
sys.stdin.read()
"""
ENVIRONMENT = dict(os.environ, GPULOOM_SOFTGPU_DEVICES="1", GPULOOM_SOFTGPU_MEMORY="1GiB", GPULOOM_SOFTGPU_QUIET="1")


class Log(unittest.TestCase):
    def setUp(self):
        ctypes.CDLL(None, use_errno=True).prctl(demo.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.state = pathlib.Path(tempfile.mkdtemp(prefix="gpuloom-log-"))
        self.addCleanup(shutil.rmtree, self.state)
        self.addCleanup(self.EndEverything)

    def EndEverything(self):
        demo.SignalDescendants(signal.SIGKILL)
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

    def Command(self, domain, *program):
        return [BUILD / "bin/gpuloom", "run", "--softgpu", "--state-dir", self.scheduler, "--domain", domain, "--", *program]

    def Tenant(self, domain):
        ran = subprocess.run(self.Command(domain, sys.executable, TENANT), env=ENVIRONMENT, capture_output=True, text=True, check=False,
                             timeout=PATIENCE)
        self.assertIn("launch\tok", ran.stdout, ran.stderr)

    def StayingTenant(self, domain):
        """Ends with the test at the latest."""
        tenant = subprocess.Popen(self.Command(domain, sys.executable, "-c", STAYING_TENANT), env=ENVIRONMENT, text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(tenant.communicate)
        self.assertEqual(tenant.stdout.readline(), "holds a context\n", self.Text())

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

        # Only executors that run hear a signal, so one does from here on.
        self.StayingTenant("present")
        self.agent.send_signal(signal.SIGUSR1)
        # Executors that run, and those that become ready afterwards.
        self.Until(lambda: self.Said("everything from now on") == PROGRAMS, "not all log everything")
        self.Tenant("meanwhile")
        self.Until(lambda: any(line["program"] == "gpuloom-executor" for line in self.Debug()), "nothing more is logged")

        self.agent.send_signal(signal.SIGHUP)
        self.Until(lambda: self.Said("again from the level") == PROGRAMS, "not all are as before")

        def ATenantAddsNothing():  # a spare executor may have heard the signal only while the one before ran
            before = len(self.Debug())
            self.Tenant("after")
            return len(self.Debug()) == before
        self.Until(ATenantAddsNothing, "a tenant is still logged in full")

    def test_what_grpc_says_of_a_missing_kubelet_folder_has_the_format_too(self):
        with open(self.state / "agent.log", "wb") as log:
            self.agent = subprocess.Popen([BUILD / "bin/gpuloom-agent", "--schedulers=adopt", "--log-format=json", "--state-dir", self.state,
                                           "--kubelet-dir", self.state / "none", "--pod-resources-socket", self.state / "none/kubelet.sock",
                                           "--softgpu", BUILD / "lib/softgpu/libcuda.so.1"], stderr=log, env=ENVIRONMENT)
        # Every line is an object, or this fails.
        self.Until(lambda: self.Said("gRPC: ") == {"gpuloom-agent"}, "gRPC says nothing")

    def test_whoever_awaits_pods_has_the_format_too(self):
        self.agent = subprocess.Popen([BUILD / "bin/gpuloom-agent", "--await-pods=x", "--await-timeout=0s", "--log-format=json",
                                       "--api-server=http://127.0.0.1:1", "--service-account", self.state], stderr=subprocess.PIPE, text=True)
        (self.state / "namespace").write_text("gpuloom-system")
        _, said = self.agent.communicate(timeout=PATIENCE)
        self.assertEqual({json.loads(line)["program"] for line in said.splitlines()}, {"gpuloom-agent"})
        self.assertEqual(self.agent.returncode, 1)

    def test_all_keep_to_the_level(self):
        self.Start("--log-level=error", "--log-format=text")
        self.Tenant("quiet")
        self.assertEqual(self.Text(), "")


if __name__ == "__main__":
    unittest.main()
