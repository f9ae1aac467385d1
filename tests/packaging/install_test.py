#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What `cmake --install` makes: everything is there, runs from there and from wherever it is moved to, and its units start what
they say within the limits that they set.

usage: install_test.py BUILD_FOLDER   where gpuloom_installed and fake-kubelet are built
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

import installed
import yaml
from installed import PATIENCE, ROOT, Files, Machine, Output, Unit

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
FOLDER = BUILD / "packaging/install"
PROGRAMS = {"bin/gpuloom", "bin/gpuloom-agent", "bin/kubectl-gpuloom", "bin/kubectl_complete-gpuloom",
            "libexec/gpuloom/gpuloom-scheduler", "libexec/gpuloom/gpuloom-executor"}
LIBRARIES = {"lib/gpuloom/libgpuloom.so", "lib/gpuloom/libgpuloom-nvml.so", "lib/gpuloom/softgpu/libcuda.so.1"}
OF_TENANTS = {"lib/gpuloom/gpuloom-trace"}
UNITS = {"lib/systemd/system/gpuloom-agent.service", "lib/systemd/system/gpuloom-schedulers.service",
         "lib/systemd/system/gpuloom-scheduler@.service"}


def Install(prefix, *arguments, destination=None):
    environment = dict(os.environ)
    environment.pop("DESTDIR", None)
    if destination:
        environment["DESTDIR"] = str(destination)
    return Output("cmake", "--install", BUILD, "--prefix", prefix, "--strip", *arguments, env=environment)


class Installation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        cls.staged = FOLDER / "staged"
        Install("/usr", destination=cls.staged)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)

    def test_everything_is_there_and_nothing_else(self):
        files = Files(self.staged)
        usr = {name.removeprefix("usr/") for name in files if name.startswith("usr/")}
        self.assertEqual({name for name in files if not name.startswith("usr/")}, {"etc/gpuloom/policy.yaml"})
        pages = {name for name in usr if name.startswith(("share/man/man1/gpuloom", "share/doc/gpuloom/"))}
        completion = {"share/bash-completion/completions/gpuloom", "share/zsh/site-functions/_gpuloom",
                      "share/fish/vendor_completions.d/gpuloom.fish"}
        self.assertEqual(usr - pages, PROGRAMS | LIBRARIES | OF_TENANTS | UNITS | completion)
        self.assertLessEqual({"share/man/man1/gpuloom-run.1", "share/doc/gpuloom/LICENSE", "share/doc/gpuloom/README.md",
                              "share/doc/gpuloom/docs/policy.md", "share/doc/gpuloom/deploy/examples/policy.yaml"}, pages)
        for name in usr:
            mode = (self.staged / "usr" / name).stat().st_mode & 0o7777
            wanted = 0o755 if name in PROGRAMS | OF_TENANTS else 0o644  # Debian's libraries are no programs
            self.assertEqual(mode, wanted, f"{name}: {mode:o}")

    def test_programs_look_for_libraries_nowhere_but_where_the_system_does(self):
        for name in PROGRAMS | LIBRARIES - {"bin/kubectl-gpuloom", "bin/kubectl_complete-gpuloom"}:
            dynamic = subprocess.run(["readelf", "-d", self.staged / "usr" / name], capture_output=True, text=True, check=False)
            self.assertNotRegex(dynamic.stdout, "R(UN)?PATH", name)

    def test_it_runs_from_there_and_from_wherever_it_is_moved(self):
        machine = Machine(self, FOLDER / "machine")
        installed.RunsATenant(self, self.staged / "usr", machine.folder / "state")
        moved = FOLDER / "with a space, moved"
        shutil.copytree(self.staged / "usr", moved, symlinks=True)
        installed.RunsATenant(self, moved, machine.folder / "moved")
        link = machine.folder / "gpuloom"
        link.symlink_to(moved / "bin/gpuloom")
        self.assertIn("ok\n", Output(link, "run", "--softgpu", "--state-dir", machine.folder / "link", "--",
                                      "echo", "ok", env=dict(os.environ, **installed.SOFTGPU)))

    def test_a_component_alone_says_what_it_lacks(self):
        alone = FOLDER / "alone"
        Install(alone, "--component", "node")
        self.assertFalse((alone / "bin/gpuloom-agent").exists())
        machine = Machine(self, FOLDER / "machine")
        command = [alone / "bin/gpuloom", "run", "--softgpu", "--state-dir", machine.folder / "state", "--", "true"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        self.assertEqual(ran.returncode, 125)
        self.assertIn("the software GPU is not installed", ran.stderr)
        Install(alone, "--component", "softgpu")
        Output(*command)

    def test_an_administrators_policy_is_kept(self):
        prefix = FOLDER / "kept"
        Install(prefix)
        policy = prefix / "etc/gpuloom/policy.yaml"
        Output(prefix / "bin/gpuloom-agent", "--check-policy", "--policy", policy)
        policy.write_text("defaults: {memory: 1GiB}\n")
        self.assertIn(f"Kept: {policy}", Install(prefix))
        self.assertEqual(policy.read_text(), "defaults: {memory: 1GiB}\n")

    def test_manual_pages_and_completion_can_be_read(self):
        share = self.staged / "usr/share"
        for page in (share / "man/man1").iterdir():
            Output("groff", "-man", "-ww", "-z", page)
        Output("bash", "-n", share / "bash-completion/completions/gpuloom")

    def test_units_are_right(self):
        prefix = FOLDER / "units"
        Install(prefix)
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze")
        environment = dict(os.environ, MANPATH=str(prefix / "share/man"))
        for name in UNITS:
            unit = str(prefix / name).replace("@.", "@0.")
            checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False,
                                     env=environment, timeout=PATIENCE)
            about_ours = [line for line in checked.stderr.splitlines() if "gpuloom" in line and "'man " not in line]
            self.assertEqual((checked.returncode, about_ours), (0, []), checked.stderr)
            # What systemd itself would call a risk is no more than it is.
            Output("systemd-analyze", "security", "--offline=true", "--threshold=50", unit)

    def Prefix(self):
        why = installed.WhyNoUnitRuns()
        if why:
            self.skipTest(why)
        prefix = FOLDER / "service"
        Install(prefix)
        return prefix

    def test_a_scheduler_serves_tenants_within_its_units_limits(self):
        prefix = self.Prefix()
        machine = Machine(self, FOLDER / "machine")
        runtime = machine.folder / "run/gpu0"
        runtime.mkdir(parents=True, mode=0o700)
        unit = Unit(prefix / "lib/systemd/system/gpuloom-scheduler@.service")
        service = machine.Start(unit.Within("0", {
            "RUNTIME_DIRECTORY": str(runtime),
            "GPULOOM_SCHEDULER_OPTIONS": f"--cuda-library {prefix}/lib/gpuloom/softgpu/libcuda.so.1"}, [runtime]), "service.log")
        WaitFor(runtime / "control.sock", service, machine)
        tenant = machine.Start([prefix / "bin/gpuloom", "run", "--softgpu", "--state-dir", runtime, "--", sys.executable, "-uc",
                                installed.POD + "input()"], "tenant.log")
        self.assertEqual(tenant.stdout.readline(), "7\n", machine.Log("tenant.log") + machine.Log("service.log"))
        # A spare one that begins has its own user a moment later.
        end = time.monotonic() + PATIENCE
        while 0 in (executors := installed.UsersOf("gpuloom-executor")) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertTrue(executors and all(user >= installed.FIRST_EXECUTOR_USER for user in executors), executors)
        tenant.communicate("\n", timeout=PATIENCE)
        self.assertEqual(tenant.returncode, 0, machine.Log("tenant.log"))
        log = machine.Log("service.log")
        # A machine that stalls makes the scheduler say so.
        others = re.sub("(?m)^.*(woke [0-9.]+ s late|a step took [0-9.]+ s), so nobody was served.*$", "", log)
        self.assertNotRegex(others, "(?m)^[^ ]+ (warning|error) ", log)
        # As systemd ends it (KillMode=mixed).
        self.assertEqual(unit.Get("KillMode"), "mixed")
        service.send_signal(signal.SIGTERM)
        self.assertEqual(service.wait(PATIENCE), 0)
        self.assertEqual(installed.UsersOf("gpuloom-executor"), set())
        self.assertEqual([name for name in Files(runtime) if name != "lock"], [])

    def test_agent_and_schedulers_serve_a_pod_within_their_units_limits(self):
        prefix = self.Prefix()
        machine = Machine(self, FOLDER / "machine")
        state, kubelet = machine.folder / "state", machine.folder / "kubelet"
        state.mkdir(mode=0o700)
        scenario = machine.folder / "scenario.yaml"
        scenario.write_text(yaml.safe_dump({"pods": [{"namespace": "team-a", "name": "train", "slots": 1,
                                                      "command": [sys.executable, "-c", installed.POD]}]}))
        cluster = machine.Start([BUILD / "bin/fake-kubelet", "--dir", kubelet, "--scenario", scenario, "--ready",
                                 "--wait-devices", 10], "kubelet.log")
        cluster.stdout.readline()  # its sockets are there
        plugins = kubelet / "device-plugins"
        softgpu = f"--softgpu={prefix}/lib/gpuloom/softgpu/libcuda.so.1"
        units = {name: Unit(prefix / f"lib/systemd/system/gpuloom-{name}.service") for name in ("schedulers", "agent")}
        self.assertEqual(units["agent"].Get("ReadWritePaths"), "-/var/lib/kubelet/device-plugins")
        services = [
            machine.Start(units["schedulers"].Within("", {"STATE_DIRECTORY": str(state), "GPULOOM_SCHEDULERS_OPTIONS": softgpu},
                                                     [state]), "schedulers.log"),
            machine.Start(units["agent"].Within("", {
                "STATE_DIRECTORY": str(state),
                "GPULOOM_AGENT_OPTIONS": f"{softgpu} --kubelet-dir={plugins} "
                                         f"--pod-resources-socket={kubelet}/pod-resources/kubelet.sock"},
                                                [state, plugins]), "agent.log")]
        results = [json.loads(line) for line in cluster.stdout if line.startswith('{"namespace"')]
        logs = "".join(machine.Log(f"{name}.log") for name in ("kubelet", "schedulers", "agent"))
        self.assertEqual([result["phase"] for result in results], ["Succeeded"], f"{results}\n{logs}")
        self.assertEqual(results[0]["stdout"], "7\n")
        # Both begin together: that it does not find the schedulers at once is no error.
        self.assertNotRegex(machine.Log("agent.log"), "(?m)^[^ ]+ error")
        # A spare one that begins has its own user a moment later.
        end = time.monotonic() + PATIENCE
        while 0 in (executors := installed.UsersOf("gpuloom-executor")) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertTrue(executors and all(user >= installed.FIRST_EXECUTOR_USER for user in executors), executors)
        for service in reversed(services):
            service.send_signal(signal.SIGTERM)
            self.assertEqual(service.wait(PATIENCE), 0, logs)
        self.assertEqual(installed.UsersOf("gpuloom-scheduler") | installed.UsersOf("gpuloom-executor"), set())


def WaitFor(path, process, machine):
    """Until it is there; the process must live until then."""
    while not path.exists():
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"ended with {process.returncode} before {path} was there:\n{machine.Log('service.log')}")


if __name__ == "__main__":
    unittest.main()
