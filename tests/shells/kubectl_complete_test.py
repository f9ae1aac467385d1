#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/kubectl_complete-gpuloom as kubectl asks it: what it offers is what the plugin takes, and what gpuloom's own completion
offers.

usage: kubectl_complete_test.py BUILD_FOLDER [--fix | unittest's arguments]   --fix: put gpuloom's own completion into the program
"""

import pathlib
import re
import subprocess
import sys
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
PROGRAM = DEPLOY / "kubectl_complete-gpuloom"
FUNCTION = re.compile(r"^_gpuloom\(\) \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)


def Output(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)


def Offered(*words):
    ended = Output(PROGRAM, *words)
    assert not ended.stderr, ended.stderr
    return ended.stdout.splitlines()


def OfGpuloom():
    return FUNCTION.search(Output(BUILD / "bin/gpuloom", "completion", "bash").stdout)[0]


def Fix():
    PROGRAM.write_text(FUNCTION.sub(lambda _: OfGpuloom(), PROGRAM.read_text(), count=1))


class Completion(unittest.TestCase):
    def test_it_has_gpulooms_own_completion(self):
        self.assertEqual(FUNCTION.search(PROGRAM.read_text())[0], OfGpuloom(), "run this with --fix")

    def test_the_script_is_clean(self):
        checked = subprocess.run(["shellcheck", PROGRAM], capture_output=True, text=True, check=False)
        self.assertEqual(checked.stdout, "")

    def test_first_come_the_plugins_options_and_commands(self):
        usage = Output(DEPLOY / "kubectl-gpuloom", "--help").stdout
        options = set(re.findall(r"--[\w-]+", usage.splitlines()[0])) | {"--help"}
        column = usage.index("one table") - usage.rindex("\n", 0, usage.index("one table")) - 1
        commands = {word.split()[0] for line in usage.splitlines() if line.startswith("  ") for word in line[:column].split(" | ")}
        self.assertLessEqual({"tenants", "policy", "resume", "trace"}, commands)
        self.assertEqual(set(Offered("")), options | commands)
        self.assertEqual(set(Offered()), options | commands)
        self.assertEqual(Offered("--node", "a", "te"), ["tenants"])
        self.assertEqual(Offered("--agent"), ["--agent-namespace"])
        self.assertEqual(Offered("--node", ""), [])

    def test_then_what_gpuloom_offers(self):
        self.assertEqual(Offered("top", "--sort", "me"), ["memory"])
        self.assertEqual(Offered("--node", "a", "--context", "prod", "doctor", "-o", ""), ["table", "json", "yaml"])
        self.assertEqual(Offered("policy", ""), ["show", "diff"])
        self.assertIn("--output", Offered("policy", "show", "--"))
        self.assertEqual(Offered("drain", "--rea"), ["--reason"])

    def test_else_nothing_so_that_files_are_offered(self):
        for words in (["trace", "-o", ""], ["policy", "diff", "deploy/"], ["run", "--"], ["policy", "check", "-"], ["--kubeconfig", "/"]):
            self.assertEqual(Offered(*words), [], words)


if __name__ == "__main__":
    if "--fix" in sys.argv:
        Fix()
    else:
        unittest.main()
