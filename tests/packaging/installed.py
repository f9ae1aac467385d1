# SPDX-License-Identifier: Apache-2.0
"""What is asked of an installation, whoever has made it: the rules of CMake, or a package that was unpacked."""

import ctypes
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
import demo  # noqa: E402

TENANT = ROOT / "tests/frameworks/driver_ctypes.py"
# A pod's program: fills memory of the GPU, and prints what it reads there. The library is the one that was preloaded.
POD = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, memory, word = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32()
for status in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
               cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)),
               cuda.cuMemsetD32_v2(memory, 7, ctypes.c_size_t(1024)),
               cuda.cuMemcpyDtoH_v2(ctypes.byref(word), ctypes.c_uint64(memory.value + 4092), ctypes.c_size_t(4))):
    assert status == 0, status
print(word.value)
"""
# Long against what anything here takes on a machine that is busy.
PATIENCE = 120
SOFTGPU = {"GPULOOM_SOFTGPU_MEMORY": "1GiB", "GPULOOM_SOFTGPU_QUIET": "1"}
# The first of the users that executors of a scheduler that may choose run as (agent/scheduler/executor_users.h).
FIRST_EXECUTOR_USER = 2_000_000_000


def Output(*command, **rest):
    ran = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=PATIENCE, **rest)
    if ran.returncode:
        raise AssertionError(f"{command}: status {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def Files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def RunsATenant(test, prefix, state):
    """Programs, shim and software GPU of `prefix` find each other and compute."""
    environment = dict(os.environ, **SOFTGPU)
    for program in ("gpuloom", "gpuloom-agent"):
        test.assertRegex(Output(prefix / "bin" / program, "--version"), rf"^{program} \d+\.\d+\.\d+ ")
    output = Output(prefix / "bin/gpuloom", "run", "--softgpu", "--state-dir", state, "--", sys.executable, TENANT,
                    env=environment)
    test.assertRegex(output, r"(?m)^compile with the driver and launch\tok")
    findings = json.loads(subprocess.run([prefix / "bin/gpuloom", "doctor", "-o", "json"], capture_output=True, text=True,
                                         check=False, timeout=PATIENCE).stdout)
    installation = [finding for finding in findings["findings"] if finding["check"] == "installation"]
    test.assertEqual([finding["verdict"] for finding in installation], ["ok"], installation)


class Unit:
    """A service's unit: {key: [values]}, whatever the section."""

    def __init__(self, path):
        self.path = path
        self.settings = {}
        for line in path.read_text().splitlines():
            if "=" in line and not line.startswith(("#", ";")):
                key, _, value = line.partition("=")
                self.settings.setdefault(key, []).append(value)

    def Get(self, key, default=""):
        return self.settings.get(key, [default])[-1]

    def Command(self, instance, environment):
        """ExecStart's words. $NAME is as many words as it has, ${NAME} one."""
        words = []
        for word in self.Get("ExecStart").split():
            word = word.replace("%i", instance)
            name = re.fullmatch(r"\$(\w+)", word)
            if name:
                words += shlex.split(environment.get(name[1], ""))
            else:
                words.append(re.sub(r"\$\{(\w+)\}", lambda match: environment[match[1]], word))
        return words

    def Within(self, instance, environment, writable):
        """The same within what the unit leaves to its processes, as far as that can be had without systemd: capabilities, no new
        privileges, a file system that is read-only but for `writable`, a /tmp of its own."""
        kept = [name.removeprefix("CAP_").lower() for name in self.Get("CapabilityBoundingSet").split()]
        steps = [f"mount --bind {shlex.quote(str(folder))} {shlex.quote(str(folder))}" for folder in writable]
        if self.Get("PrivateTmp") == "yes":
            steps.append("mount -t tmpfs -o mode=1777 tmpfs /tmp")
        if self.Get("ProtectSystem") == "strict":
            steps.append("mount -o remount,bind,ro /")
        steps.append('exec "$@"')
        setpriv = ["setpriv", "--inh-caps=-all", "--bounding-set=" + ",".join(["-all"] + [f"+{name}" for name in kept])]
        if self.Get("NoNewPrivileges") == "yes":
            setpriv.append("--no-new-privs")
        return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", " && ".join(steps), "sh", *setpriv, "--",
                *self.Command(instance, environment)]


def WhyNoUnitRuns():
    """Empty if this process may do to another what systemd would."""
    if os.geteuid() != 0:
        return "only root can take from a process what systemd would take"
    if pathlib.Path(__file__).resolve().is_relative_to("/tmp"):
        return "units have a /tmp of their own, and this checkout lies below /tmp"
    tried = subprocess.run(["unshare", "--mount", "--propagation", "private", "mount", "-o", "remount,bind,ro", "/"],
                           capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no mounts can be made here: {tried.stderr.strip()}"


class Machine:
    """Processes that a test starts, and ends with it. Schedulers outlive who started them: they become this process's."""

    def __init__(self, test, folder):
        ctypes.CDLL(None, use_errno=True).prctl(demo.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.started = []
        test.addCleanup(self.End)

    def End(self):
        demo.SignalDescendants(signal.SIGKILL)
        for process in self.started:
            process.communicate()
        demo.WaitUntilAlone(PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)

    def Start(self, command, log):
        with open(self.folder / log, "ab") as errors:
            self.started.append(subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                 stderr=errors, text=True, env=dict(os.environ, **SOFTGPU)))
        return self.started[-1]

    def Log(self, name):
        return (self.folder / name).read_text(errors="replace")


def UsersOf(program):
    """The users of this process's descendants that run `program`."""
    users = set()
    for pid, name in demo.Descendants().items():
        if name == program[:15]:  # what the kernel keeps
            # Not the owner of its folder in /proc, which is root for who may not be traced.
            users.add(int(re.search(r"(?m)^Uid:\t(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]))
    return users
