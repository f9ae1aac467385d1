#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The releases, newest first: releases.json has the version and the commit of each.

usage: releases.py                             prints them
       releases.py --record VERSION COMMIT     adds one, or moves the newest to another commit
       releases.py --take FOLDER [VERSION]     writes its sources to a new FOLDER, to be built there; without VERSION the newest that is
                                               not the tree's own: what an upgrade comes from
"""

import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = pathlib.Path(__file__).resolve().parent / "releases.json"


def Git(*arguments, text=True):
    """git's answer about this repository, whoever owns its folder."""
    return subprocess.run(["git", "-c", f"safe.directory={ROOT}", "-C", ROOT, *arguments], capture_output=True, text=text, check=False)


def Releases():
    return json.loads(FILE.read_text())


def VersionIn(cmake_lists):
    """What project() of a CMakeLists.txt says."""
    return re.search(r"^project\(gpuloom VERSION (\d+\.\d+\.\d+) ", cmake_lists, re.MULTILINE)[1]


def VersionAt(commit):
    shown = Git("show", f"{commit}:CMakeLists.txt")
    return VersionIn(shown.stdout) if shown.returncode == 0 else None


def TreesVersion():
    return VersionIn((ROOT / "CMakeLists.txt").read_text())


def Record(version, commit):
    found = Git("rev-parse", "--verify", f"{commit}^{{commit}}")
    if found.returncode:
        sys.exit(f"releases.py: {commit} is no commit")
    if VersionAt(commit) != version:
        sys.exit(f"releases.py: the version of {commit} is {VersionAt(commit)}")
    others = [release for release in Releases() if release["version"] != version]
    lines = [json.dumps(release) for release in [{"version": version, "commit": found.stdout.strip()}, *others]]
    FILE.write_text("[\n  " + ",\n  ".join(lines) + "\n]\n")


def Take(folder, version=None):
    for release in Releases():
        if release["version"] == version or version is None and release["version"] != TreesVersion():
            break
    else:
        sys.exit(f"releases.py: no release {version or 'before ' + TreesVersion()} is recorded")
    archive = Git("archive", release["commit"], text=False)
    if archive.returncode:
        sys.exit(f"releases.py: {archive.stderr.decode()}")
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as sources:
        sources.extractall(folder)
    print(f"{release['version']} ({release['commit'][:12]}): {folder}")


def main():
    arguments = sys.argv[1:]
    if not arguments:
        for release in Releases():
            print(release["version"], release["commit"])
    elif arguments[0] == "--record" and len(arguments) == 3:
        Record(*arguments[1:])
    elif arguments[0] == "--take" and len(arguments) in (2, 3):
        Take(pathlib.Path(arguments[1]), *arguments[2:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
