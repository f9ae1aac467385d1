#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetches CUDA runtimes that are older than the toolkit: fetch.py FOLDER

They are Debian's packages, unpacked to FOLDER/11.8 and FOLDER/12.4 and never installed. apt-get takes them from the mirror that this
machine already uses, with lists and a cache in FOLDER, so that the system's own stay as they are; it checks Debian's signatures.
What FOLDER already has is not fetched again. Exit status 77, which ctest shows as skipped, if a runtime cannot be had here.
"""

import pathlib
import shutil
import subprocess
import sys
import time

SKIPPED = 77
# For everything, in seconds: less than ctest has.
PATIENCE = 200
BEGAN = time.monotonic()
# What the folder is called, Debian's suite and package (of non-free), and the library in it.
RUNTIMES = [("11.8", "bookworm", "libcudart11.0", "libcudart.so.11.0"), ("12.4", "trixie", "libcudart12", "libcudart.so.12")]


class CannotBeHad(Exception):
    """Says why."""


def Run(*command, folder=None):
    """What it prints. Names its first error otherwise."""
    name = pathlib.Path(command[0]).name
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                              timeout=max(1, BEGAN + PATIENCE - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise CannotBeHad(f"{name} has not ended {PATIENCE} s after the beginning") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:", "dpkg"))]
        raise CannotBeHad(f"{name}: {(errors or ['exit status ' + str(done.returncode)])[0]}")
    return done.stdout


def Mirror():
    """Where this machine takes its Debian packages from."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise CannotBeHad("this is no Debian: apt-get or dpkg-deb is missing")
    for line in Run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages").splitlines():
        # A source without suites has fewer words.
        words = line.split()
        if len(words) == 3 and words[2] == "main" and "debian" in words[0] and "-" not in words[1]:
            return words[0]
    raise CannotBeHad("apt's sources name no mirror of Debian")


def Apt(folder):
    """apt-get with everything it writes in `folder`."""
    for name in ["lists/partial", "archives/partial"]:
        (folder / name).mkdir(parents=True, exist_ok=True)
    sources = folder / "sources.list"
    mirror = Mirror()
    sources.write_text("".join(f"deb [arch=amd64] {mirror} {suite} non-free\n" for suite in sorted({runtime[1] for runtime in RUNTIMES})))
    settings = folder / "apt.conf"
    # The system's hooks would clean the system's cache.
    settings.write_text(f"""#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::SourceList "{sources}";
Dir::Etc::SourceParts "-";
Dir::State::Lists "{folder}/lists";
Dir::Cache "{folder}";
Dir::Cache::Archives "archives";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "1";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
""")
    return ["apt-get", "-c", settings, "-q"]


def Fetch(folder):
    wanted = [runtime for runtime in RUNTIMES if not (folder / runtime[0] / runtime[3]).exists()]
    if not wanted:
        return
    own = folder / "apt"
    apt = Apt(own)
    Run(*apt, "update")
    for name, suite, package, library in wanted:
        for old in own.glob(f"{package}_*.deb"):
            old.unlink()
        Run(*apt, "download", f"{package}/{suite}", folder=own)
        [deb] = own.glob(f"{package}_*.deb")
        unpacked = own / name
        Run("dpkg-deb", "-x", deb, unpacked)
        [found] = [path for path in unpacked.rglob(library)]
        # All at once: an interrupted run leaves no half of a library.
        (folder / name).mkdir(exist_ok=True)
        shutil.copyfile(found, folder / name / "partial")
        (folder / name / "partial").rename(folder / name / library)
        print(f"CUDA runtime {name}: {deb.name}")


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        Fetch(folder)
    except CannotBeHad as why:
        print(f"skipped: older CUDA runtimes cannot be fetched: {why}")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
