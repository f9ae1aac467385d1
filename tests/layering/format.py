#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every C++ and CUDA source is formatted as .clang-format says. usage: format.py [--fix]"""

import pathlib
import subprocess
import sys

from check import Files


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    names = [name for path, name in Files(root) if path.suffix in {".h", ".cc", ".cu"}]
    action = ["-i"] if "--fix" in sys.argv else ["--dry-run", "-Werror"]
    status = subprocess.run(["clang-format", "--style=file", *action, *names], cwd=root, check=False).returncode
    print(f"format: {len(names)} files, {'formatted' if status == 0 else 'some differ: run tests/layering/format.py --fix'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
