#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The version stands in one place, project() of the top-level CMakeLists.txt. Whatever cannot be derived from it says the
same, and so does every program.

usage: version_test.py [PROGRAM…]   the built programs that know --version
       version_test.py --fix        writes the version into the chart and the documents
"""

import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = r"\d+\.\d+\.\d+"
# What says the version where nothing can be derived: (files, what stands before it).
COPIES = [("charts/gpuloom/Chart.yaml", r"^version: "),
          ("charts/gpuloom/Chart.yaml", r"^appVersion: "),
          ("README.md", r"\bgpuloom:"),
          ("docs/installation.md", r"\bgpuloom:"),
          # And in the chart's label there: tests/chart/manifests.py --fix.
          ("deploy/manifests/gpuloom.yaml", r"\bgpuloom:"),
          ("deploy/manifests/gpuloom-softgpu.yaml", r"\bgpuloom:")]
# Where another image tag or version of ours would be noticed by nobody.
SEARCHED = ["*.md", "Dockerfile", ".devcontainer/*", "docs/**/*.md", "charts/**/*", "deploy/**/*"]
DIARIES = {"CHANGELOG.md"}  # name older versions, too


def Version():
    return re.search(rf"^project\(gpuloom VERSION ({VERSION}) ", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]


def Constant(header, name):
    return re.search(rf"\b{name} = (\d+);", (ROOT / header).read_text())[1]


def Spoken():
    """The versions of wire and control."""
    return (".".join(Constant(header, name + part) for part in ("Major", "Minor"))
            for header, name in [("proto/wire/version.h", "kWire"), ("proto/control/protocol_version.h", "kControl")])


def Fix():
    for name, before in COPIES:
        path = ROOT / name
        path.write_text(re.sub(rf"({before}){VERSION}", rf"\g<1>{Version()}", path.read_text(), flags=re.MULTILINE))


class VersionTest(unittest.TestCase):
    def test_every_copy_is_the_projects(self):
        for name, before in COPIES:
            found = re.findall(rf"{before}({VERSION})", (ROOT / name).read_text(), re.MULTILINE)
            self.assertEqual(set(found), {Version()}, f"{name}: tests/versions/version_test.py --fix")

    def test_no_copy_is_unknown(self):
        known = {name for name, _ in COPIES} | DIARIES
        for pattern in SEARCHED:
            for path in ROOT.glob(pattern):
                name = path.relative_to(ROOT).as_posix()
                if path.is_file() and name not in known:
                    found = re.search(rf"gpuloom[: ]{VERSION}|[vV]ersion: *{VERSION}", path.read_text())
                    self.assertIsNone(found, f"{name}: {found and found[0]}: a row of COPIES is missing")

    def test_the_changelog_tells_of_it(self):
        self.assertIn(f"\n## {Version()}\n", (ROOT / "CHANGELOG.md").read_text())

    def test_the_upgrade_guide_tells_what_it_speaks(self):
        wire, control = Spoken()
        needed = f"{Constant('proto/wire/version.h', 'kWireMajor')}.{Constant('proto/wire/version.h', 'kNeededMinor')}"
        self.assertIn(f"\n| this one | {wire}; {needed} | {control} |\n", (ROOT / "docs/upgrading.md").read_text())

    def test_every_program_says_it_with_what_it_speaks(self):
        wire, control = Spoken()
        for program in PROGRAMS:
            said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
            more = r"(no )?CUPTI: .+\n" if program.name == "gpuloom-executor" else ""
            self.assertRegex(said, rf"^{program.name} {re.escape(Version())} \(.+\), wire {wire}, control {control}\n{more}$")


if __name__ == "__main__":
    if sys.argv[1:] == ["--fix"]:
        Fix()
        sys.exit()
    PROGRAMS = [pathlib.Path(name) for name in sys.argv[1:]]
    del sys.argv[1:]
    unittest.main()
