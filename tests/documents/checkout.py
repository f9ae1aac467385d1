# SPDX-License-Identifier: Apache-2.0
"""A clean checkout, as a reader has it, and a machine to type commands on: its driver is the software GPU where there is no
other, and what needs a cluster, a registry or hours of building has a stand-in (stand_ins/)."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAND_INS = pathlib.Path(__file__).resolve().parent / "stand_ins"
HAS_GPU = pathlib.Path("/proc/driver/nvidia/version").exists()
AUTHOR = {f"GIT_{who}_{what}": f"reader{'@example.org' if what == 'EMAIL' else ''}"
          for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def Sources():
    """Every file that a commit of the tree as it is would have."""
    if not (ROOT / ".git").exists():
        skipped = shutil.ignore_patterns("build", ".cache", "__pycache__")
        for folder, folders, names in os.walk(ROOT):
            ignored = skipped(folder, folders)
            folders[:] = [name for name in folders if name not in ignored]
            yield from (pathlib.Path(folder, name).relative_to(ROOT) for name in names)
        return
    listed = subprocess.run(["git", "-c", f"safe.directory={ROOT}", "-C", ROOT, "ls-files", "-z", "--cached", "--others",
                             "--exclude-standard"], capture_output=True, text=True, check=True).stdout
    yield from (pathlib.Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file())


class Checkout:
    """Lives in a folder of its own in `parent`, which must be on the build folder's file system. `node` is what stand_ins/kubectl
    asks. Not thread-safe."""

    def __init__(self, parent, build, renderer, state, node):
        self.holder = tempfile.TemporaryDirectory(prefix="checkout-", dir=parent)
        # Sockets have short names, and are not among those of whoever runs the tests.
        self.runtime = tempfile.TemporaryDirectory(prefix="gpuloom-", ignore_cleanup_errors=True)
        self.folder = pathlib.Path(self.holder.name, "gpuloom")
        for name in Sources():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.folder / name, follow_symlinks=False)
        (pathlib.Path(self.holder.name) / "state.json").write_text(json.dumps(state))
        self.environment = dict(
            os.environ, **AUTHOR, PATH=f"{STAND_INS}{os.pathsep}{os.environ['PATH']}", PYTHONDONTWRITEBYTECODE="1",
            PYTHONPATH=str(ROOT / "tests/images"), XDG_RUNTIME_DIR=self.runtime.name, GPULOOM_SOFTGPU_MEMORY="1GiB",
            GPULOOM_SOFTGPU_QUIET="1", GPULOOM_STAND_IN_BUILD=str(build), GPULOOM_STAND_IN_STATE=self.holder.name,
            GPULOOM_RENDERER=str(renderer), GPULOOM_STAND_IN_NODE=json.dumps(node))
        # What the test's own environment says of results and builds is not the reader's.
        for name in ("GTEST_OUTPUT", "GTEST_FILTER", "GPULOOM_COMMIT", "MAKEFLAGS", "DESTDIR"):
            self.environment.pop(name, None)
        if not HAS_GPU:
            self.environment["LD_LIBRARY_PATH"] = str(build / "lib/softgpu")
        self.Type("git init -q . && git commit -q --allow-empty -m 'What is checked out'")

    def Type(self, command):
        """The command's exit status and all that it printed, as it comes to a terminal."""
        ended = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=self.folder, env=self.environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               errors="replace", check=False)
        return ended.returncode, ended.stdout

    def Leave(self):
        self.holder.cleanup()
        self.runtime.cleanup()
