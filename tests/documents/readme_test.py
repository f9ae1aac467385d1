#!/usr/bin/env python3
"""The README's commands work as they are written, after its demo: what they name is what deploy/demo.sh builds, and
those that need no GPU end well.

usage: readme_test.py BUILD_FOLDER
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
BUILT = "build/dev/"  # as the README and the demo write it


def CommandLines():
    """The lines of the README's code blocks that use what has been built, without their comments."""
    blocks = re.findall(r"^```\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    lines = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith(BUILT)]


class Readme(unittest.TestCase):
    def test_the_demo_builds_what_the_next_commands_use(self):
        script = (ROOT / "deploy/demo.sh").read_text().replace("\\\n", " ")
        targets = re.search(r"cmake --build --preset dev --target ([\w\s-]+);", script).group(1).split()
        commands = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", *targets], check=True, capture_output=True,
                                  text=True).stdout
        built = {(BUILD / name).resolve() for name in re.findall(r" -o (\S+)", commands)}
        used = {word for line in CommandLines() for word in shlex.split(line) if word.startswith(BUILT)}
        self.assertTrue(used)
        for word in used:
            self.assertTrue((BUILD / word.removeprefix(BUILT)).resolve() in built, f"{word} is of none of {targets}")

    def test_the_commands_for_the_software_gpu_run(self):
        lines = [line for line in CommandLines() if "--softgpu" in line]
        self.assertTrue(lines)
        for line in lines:
            command = [str(BUILD / word.removeprefix(BUILT)) if word.startswith(BUILT) else word
                       for word in shlex.split(line)]
            # Not among the schedulers of whoever runs the tests.
            with tempfile.TemporaryDirectory(prefix="gpuloom-", ignore_cleanup_errors=True) as runtime:
                ended = subprocess.run(command, capture_output=True, text=True,
                                       env=dict(os.environ, XDG_RUNTIME_DIR=runtime))
            self.assertEqual(ended.returncode, 0, f"{line}\n{ended.stdout}{ended.stderr}")
            self.assertIn("PASS", ended.stdout, line)


if __name__ == "__main__":
    unittest.main()
