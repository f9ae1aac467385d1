#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command and option that the help has is completed by each shell, and has its place in a manual page.

usage: completion_test.py BUILD_FOLDER [unittest's arguments]
"""

import pathlib
import re
import subprocess
import sys
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
GPULOOM = BUILD / "bin/gpuloom"
SHARE = BUILD / "share"

# They stand in for zsh's own, and print what is offered.
ZSH_STAND_INS = """
compdef() { :; }
compadd() { shift; print -l -- "$@"; }
_files() { print -- FILES; }
_command_names() { print -- COMMANDS; }
_describe() { [[ $1 == -o ]] && shift; local each; for each in "${(@P)2}"; do print -- "${each%%:*}"; done; }
"""


def Output(*command):
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert ended.returncode == 0 and not ended.stderr, f"{command}: {ended.returncode}\n{ended.stderr}"
    return ended.stdout


def Help(path):
    """(subcommands, options, choices of an option's value), as the program says them to people."""
    text = Output(GPULOOM, *path, "--help")
    parts = dict(re.findall(r"(?ms)^(Options|Subcommands):\n(.*?)(?=^\S|\Z)", text))
    subcommands = re.findall(r"^  ([a-z][a-z-]*)", parts.get("Subcommands", ""), re.MULTILINE)
    options, choices = set(), {}
    for line in parts.get("Options", "").splitlines():
        names = re.match(r"  ((?:-\w,)?--[\w-]+|-\w)\b", line)
        if names:
            options |= set(names[1].split(","))
            values = re.search(r":\{([\w,]+)\}", line)
            if values:
                choices[names[1].split(",")[-1]] = values[1].split(",")
    return subcommands, options, choices


def Commands(path=()):
    """Every command of the program: (its words, its subcommands, options, choices)."""
    subcommands, options, choices = Help(path)
    yield path, subcommands, options, choices
    for name in subcommands:
        yield from Commands((*path, name))


def Bash(words):
    line = " ".join(f"'{word}'" for word in words)
    return Output("bash", "--norc", "-c", f"source {SHARE}/bash-completion/completions/gpuloom\nCOMP_WORDS=({line})\n"
                  f"COMP_CWORD={len(words) - 1}\n_gpuloom\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"").split()


def Zsh(words):
    line = " ".join(f"'{word}'" for word in words)
    begin = words[-1]
    offered = Output("zsh", "-f", "-c", f"{ZSH_STAND_INS}\nsource {SHARE}/zsh/site-functions/_gpuloom\nwords=({line})\n"
                     f"CURRENT={len(words)}\n_gpuloom").split()
    return [word for word in offered if word.startswith(begin) or word.isupper()]


def Fish(words):
    line = " ".join(words).replace("'", "")
    script = f"source {SHARE}/fish/vendor_completions.d/gpuloom.fish; complete -C '{line}'"
    return [offered.split("\t")[0] for offered in Output("fish", "--no-config", "-c", script).splitlines()]


class Completion(unittest.TestCase):
    def setUp(self):
        self.commands = list(Commands())
        self.assertGreater(len(self.commands), 10)

    def test_every_command_and_option_is_offered(self):
        for complete in (Bash, Zsh, Fish):
            for path, subcommands, options, _ in self.commands:
                with self.subTest(shell=complete.__name__, command=path):
                    line = ["gpuloom", *path]
                    offered = complete([*line, ""])
                    self.assertLessEqual(set(subcommands), set(offered))
                    self.assertNotIn("man-pages", offered)
                    self.assertLessEqual({name for name in options if name.startswith("--")}, set(complete([*line, "--"])))

    def test_values_are_offered_where_they_are_known(self):
        seen = 0
        for complete in (Bash, Zsh, Fish):
            for path, _, _, choices in self.commands:
                for option, values in choices.items():
                    self.assertEqual(sorted(complete(["gpuloom", *path, option, ""])), sorted(values))
                    seen += 1
            self.assertLessEqual({"bash", "zsh", "fish"}, set(complete(["gpuloom", "completion", ""])))
        self.assertGreater(seen, 15)

    def test_a_value_without_choices_is_a_file_and_no_option(self):
        self.assertEqual(Bash(["gpuloom", "top", "--state-dir", ""]), [])  # then bash offers files by itself
        self.assertEqual(Zsh(["gpuloom", "top", "--state-dir", ""]), ["FILES"])
        self.assertIn("/etc/", Fish(["gpuloom", "top", "--state-dir", "/et"]))

    def test_behind_two_dashes_stands_another_command(self):
        self.assertIn("bash", Bash(["gpuloom", "run", "--", "bas"]))
        self.assertEqual(Zsh(["gpuloom", "run", "--", ""]), ["COMMANDS"])
        self.assertNotIn("--softgpu", Fish(["gpuloom", "run", "--", "ls", "--s"]))

    def test_an_options_value_is_no_command(self):
        """`gpuloom top --state-dir policy` is still at top."""
        for complete in (Bash, Zsh, Fish):
            self.assertIn("--sort", complete(["gpuloom", "top", "--state-dir", "policy", "--so"]))

    def test_scripts_are_what_the_program_prints(self):
        for shell, name in (("bash", "bash-completion/completions/gpuloom"), ("zsh", "zsh/site-functions/_gpuloom"),
                            ("fish", "fish/vendor_completions.d/gpuloom.fish")):
            self.assertEqual((SHARE / name).read_text(), Output(GPULOOM, "completion", shell))
        Output("shellcheck", "-s", "bash", "-e", "SC2034", SHARE / "bash-completion/completions/gpuloom")

    def test_every_option_is_in_a_manual_page_that_formats_without_a_warning(self):
        pages = set()
        for path, subcommands, options, _ in self.commands:
            page = SHARE / "man/man1" / ("-".join(["gpuloom", *path]) + ".1")
            pages.add(page)
            text = Output("groff", "-man", "-ww", "-Kutf8", "-Tutf8", "-P-cbou", page)
            for word in [*subcommands, *options]:
                self.assertRegex(text, rf"(?<![\w-]){word}(?![\w-])", page)
            for heading in ("NAME", "SYNOPSIS", "OPTIONS", "EXIT STATUS"):
                self.assertRegex(text, rf"(?m)^{heading}$", page)
        self.assertEqual(pages, set((SHARE / "man/man1").iterdir()))


if __name__ == "__main__":
    unittest.main()
