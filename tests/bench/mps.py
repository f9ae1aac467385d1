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
        self._folder = None

    def _command(self, *words, **more):
        environment = {**os.environ, **self._places(), "CUDA_VISIBLE_DEVICES": str(self.gpu)}
        return subprocess.run([PROGRAM, *words], env=environment, capture_output=True, text=True, timeout=20, **more)

    def _places(self):
        return {"CUDA_MPS_PIPE_DIRECTORY": f"{self._folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{self._folder}/log"}

    def __enter__(self):
        if shutil.which(PROGRAM) is None:
            self.missing = f"{PROGRAM} is not on this machine"
            return self
        self._folder = tempfile.mkdtemp(prefix="gpuloom-mps-")
        for name in ("pipe", "log"):
            (pathlib.Path(self._folder) / name).mkdir()
        try:
            started = self._command("-d")
        except (OSError, subprocess.SubprocessError) as error:
            self.missing = str(error)
            return self
        if started.returncode != 0:
            self.missing = f"{PROGRAM} -d: {(started.stderr or started.stdout).strip() or started.returncode}"
            return self
        self.environment = self._places()
        return self

    def __exit__(self, *_):
        if self.environment is not None:
            try:
                self._command(input="quit -t 5\n")
            except (OSError, subprocess.SubprocessError):
                pass  # it has ended already; its folder goes below
            self.environment = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
