#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every file says its licence: in an SPDX line at its top, or in REUSE.toml where it can have none.

usage: license.py [--fix] [--root DIR]   --fix adds the missing lines
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tomllib

from check import Files

LINE = "SPDX-License-Identifier: Apache-2.0"
SLASHES = {".h", ".cc", ".cu", ".c", ".def", ".inc", ".go"}
HASHES = {".py", ".sh", ".cmake", ".yaml", ".yml", ".toml"}
HASHED_NAMES = {"CMakeLists.txt", "Dockerfile"}
# What must stay the first line: the program of a script, the syntax of a Dockerfile.
FIRST = re.compile(rb"#!|# syntax=")


def Names(root):
    """Every file of the repository: what git has or would add, or, without git, what lies there."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "-c", f"safe.directory={root}", "-C", root, "ls-files", "-z", "--cached", "--others",
                                 "--exclude-standard"], capture_output=True, text=True, check=True).stdout
        return [name for name in sorted(listed.split("\0")) if (root / name).is_file() and not (root / name).is_symlink()]
    return [name for path, name in Files(root) if path.suffix != ".pyc"]


def Pattern(glob):
    """A path of REUSE.toml as an expression: * stops at a slash, ** does not."""
    parts = re.split(r"(\*\*|\*)", glob)
    return re.compile("".join({"**": ".*", "*": "[^/]*"}.get(part, re.escape(part)) for part in parts))


def Annotated(root):
    """The patterns of what REUSE.toml speaks for."""
    path = root / "REUSE.toml"
    annotations = tomllib.loads(path.read_text()).get("annotations", []) if path.exists() else []
    globs = [annotation["path"] for annotation in annotations]
    return [Pattern(glob) for each in globs for glob in ([each] if isinstance(each, str) else each)]


def Comment(path, text):
    """How a comment of one line begins in this file, or None."""
    if path.suffix in SLASHES:
        return b"// "
    if path.suffix in HASHES or path.name in HASHED_NAMES or text.startswith(b"#!"):
        return b"# "
    return None


def Check(root, fix=False):
    """All offences, as text; with `fix`, those that are left."""
    offences = []
    annotated = Annotated(root)
    for name in Names(root):
        if any(pattern.fullmatch(name) for pattern in annotated):
            continue
        path = root / name
        text = path.read_bytes()
        lines = text.splitlines(keepends=True)
        if any(LINE.encode() in line for line in lines[:2]):
            continue
        comment = Comment(path, text)
        if comment is None:
            offences.append(f"{name}: a row of REUSE.toml, or of license.py, must say its licence")
        elif fix:
            kept = 1 if lines and FIRST.match(lines[0]) else 0
            path.write_bytes(b"".join([*lines[:kept], comment, LINE.encode(), b"\n", *lines[kept:]]))
        else:
            offences.append(f"{name}: no SPDX line: run tests/layering/license.py --fix")
    return offences


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    arguments = parser.parse_args()
    offences = Check(arguments.root, arguments.fix)
    print("\n".join([*offences, f"license: {len(offences)} offences"]))
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
