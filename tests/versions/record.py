#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what a release's agent or `gpuloom run` and a release's scheduler say to one another, on the software GPU.

usage: record.py --client BUILD --scheduler BUILD --recorder PROGRAM --out FOLDER --name NAME [--only run|status|agent]

BUILD has bin/ and lib/ of one release. Writes FOLDER/run_NAME.txt, the conversation of one command, FOLDER/status_NAME.txt, a
scrape, and FOLDER/agent_NAME.txt, that of two pods, from the agent's start to its end.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import tempfile
import time

SOFTWARE_GPU = "GPU-6770756c-6f6f-6d20-736f-667467707500"  # the first one's UUID
ENVIRONMENT = dict(os.environ, GPULOOM_SOFTGPU_DEVICES="1", GPULOOM_SOFTGPU_MEMORY="1GiB", GPULOOM_SOFTGPU_QUIET="1")


def WaitFor(what, seconds=60):
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise SystemExit("record.py: nothing came of it")
        time.sleep(0.02)


class Between:
    """A scheduler, and a recorder before it that listens in `folder`."""

    def __init__(self, arguments, folder, out):
        build = arguments.scheduler
        self.state = pathlib.Path(tempfile.mkdtemp(prefix="gpuloom-record-"))
        self.scheduler = subprocess.Popen(
            [build / "bin/gpuloom-scheduler", "--gpu", "0", "--state-dir", self.state, "--cuda-library",
             build / "lib/softgpu/libcuda.so.1"], env=ENVIRONMENT)
        WaitFor((self.state / "control.sock").exists)
        folder.mkdir(parents=True, exist_ok=True)
        self.recorder = subprocess.Popen(
            [arguments.recorder, folder / "control.sock", self.state / "control.sock", out], env=ENVIRONMENT)
        WaitFor((folder / "control.sock").exists)

    def End(self):
        status = self.recorder.wait(60)
        self.scheduler.send_signal(signal.SIGTERM)
        self.scheduler.wait(60)
        if status != 0:
            raise SystemExit("record.py: the recorder failed")


def RecordRun(arguments):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuloom-record-"))
    between = Between(arguments, folder, arguments.out / f"run_{arguments.name}.txt")
    subprocess.run([arguments.client / "bin/gpuloom", "run", "--softgpu", "--state-dir", folder, "--", "true"],
                   env=ENVIRONMENT, check=True)
    between.End()


def RecordStatus(arguments):
    """A scrape: what the agent asks for metrics and `gpuloom gpus` for people, of a GPU that nobody uses. Since 3.3."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuloom-record-"))
    between = Between(arguments, folder, arguments.out / f"status_{arguments.name}.txt")
    subprocess.run([arguments.client / "bin/gpuloom", "gpus", "--state-dir", folder], env=ENVIRONMENT, check=True)
    between.End()


def RecordAgent(arguments):
    """Two pods, one of which is gone long enough to be collected while the other runs."""
    binaries = arguments.client / "bin"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuloom-record-"))
    scenario, kubelet_folder = folder / "scenario.yaml", folder / "kubelet"
    scenario.write_text("pods:\n" + "".join(
        f"  - namespace: team-a\n    name: pod-{seconds}\n    slots: 1\n    command: [sleep, '{seconds}']\n"
        f"    timeoutSeconds: 60\n" for seconds in (1, 10)))
    kubelet = subprocess.Popen([binaries / "fake-kubelet", "--dir", kubelet_folder, "--scenario", scenario, "--ready"],
                               stdout=subprocess.PIPE, env=ENVIRONMENT)
    kubelet.stdout.readline()  # its sockets are there
    between = Between(arguments, folder / "state/gpus" / SOFTWARE_GPU, arguments.out / f"agent_{arguments.name}.txt")
    agent = subprocess.Popen(
        [binaries / "gpuloom-agent", "--state-dir", folder / "state", "--kubelet-dir", kubelet_folder / "device-plugins",
         "--pod-resources-socket", kubelet_folder / "pod-resources/kubelet.sock", "--schedulers", "adopt", "--softgpu",
         arguments.client / "lib/softgpu/libcuda.so.1", "--grace-seconds", "0", "--missing-seconds", "1"], env=ENVIRONMENT)
    kubelet.communicate()
    agent.send_signal(signal.SIGTERM)
    agent.wait(60)
    between.End()


def Arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("client", "scheduler", "recorder", "out"):
        parser.add_argument("--" + name, type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--only", choices=["run", "status", "agent"])
    return parser.parse_args()


def Main():
    arguments = Arguments()
    for record in (RecordRun, RecordStatus, RecordAgent):
        if arguments.only in (None, record.__name__[len("Record"):].lower()):
            record(arguments)


if __name__ == "__main__":
    Main()
