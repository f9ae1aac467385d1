# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's Multi-Process Service for one benchmark: its own pipe folder, nothing changed on the GPU, ended with it.

    with Mps(gpu) as mps:
        mps.environment      for a process that shall be its client; None, with mps.missing saying why, without one

A process that does not get the environment does not become a client.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile

PROGRAM = "nvidia-cuda-mps-control"


class Mps:
    def __init__(self, gpu):
        self.gpu = gpu
        self.environment = None
        self.missing = None
        self.folder = None

    def control(self, *words, said=""):
        """(exit status, output) of the control program. Its daemon inherits the output, so that must not be a pipe."""
        environment = {**os.environ, **self.places(), "CUDA_VISIBLE_DEVICES": str(self.gpu)}
        with open(self.folder / "control", "w+", encoding="utf-8", errors="replace") as output:
            done = subprocess.run([PROGRAM, *words], env=environment, input=said.encode(), stdout=output, stderr=output,
                                  timeout=20)
            output.seek(0)
            return done.returncode, output.read().strip()

    def places(self):
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(self.folder / "log")}

    def __enter__(self):
        if shutil.which(PROGRAM) is None:
            self.missing = f"{PROGRAM} is not on this machine"
            return self
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuloom-mps-"))
        for name in ("pipe", "log"):
            (self.folder / name).mkdir()
        try:
            status, said = self.control("-d")
        except (OSError, subprocess.SubprocessError) as error:
            status, said = 1, str(error)
        if status == 0:
            self.environment = self.places()
        else:
            self.missing = f"{PROGRAM} -d: {said or status}"
        return self

    def __exit__(self, *_):
        if self.environment is not None:
            self.environment = None
            try:
                self.control(said="quit -t 5\n")
            except (OSError, subprocess.SubprocessError):
                pass  # it has ended already
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
