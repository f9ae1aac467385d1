#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Dockerfile, as far as it can be held against the repository, the build and Debian where there is no registry: all that it
names is there, and its image has the libraries that its programs need.

usage: dockerfile_test.py BUILD_FOLDER   where its programs are built, by ninja
"""

import fnmatch
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import dockerfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
INSTALLER = "deploy/install-deps.sh"
BASE = r"debian:12(-slim)?"  # whose packages the installer names
OF_EVERY_IMAGE = ["libc6"]  # what debian:12-slim has anyway


def Output(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


def IsDebian12():
    release = pathlib.Path("/etc/os-release")
    return release.exists() and re.search(r'^VERSION_ID="12"$', release.read_text(), re.MULTILINE) and shutil.which("apt-cache")


def Installed(commands):
    """The packages that a RUN's apt-get installs."""
    return [word for command in commands if command[0] == "apt-get" and "install" in command
            for word in command[command.index("install") + 1:] if not word.startswith("-")]


def InstallersPackages():
    text = re.search(r"^packages=\(\n(.*?)^\)", (ROOT / INSTALLER).read_text(), re.MULTILINE | re.DOTALL)[1]
    return re.sub(r"#.*", "", text).split()


def Closure(packages):
    """The packages and all that they depend on, of those that are installed here."""
    dependencies = {}
    for line in Output("dpkg-query", "-W", "-f", "${Package}\t${Depends}, ${Pre-Depends}\n").splitlines():
        name, _, needed = line.partition("\t")
        dependencies[name] = {re.split(r"[ :(]", text)[0] for text in re.split(r"[,|] *", needed)} - {""}
    found, waiting = set(), set(packages)
    while waiting:
        found |= waiting
        waiting = set().union(*(dependencies.get(name, set()) for name in waiting)) - found
    return found


class Dockerfile(unittest.TestCase):
    def setUp(self):
        self.stages = dockerfile.Parse((ROOT / "Dockerfile").read_text())
        self.commands = {stage.name: [command for rest in stage.All("RUN") for command in dockerfile.Commands(rest)]
                         for stage in self.stages}

    def test_stages_and_what_is_taken_from_them(self):
        names = [stage.name for stage in self.stages]
        self.assertEqual(names, ["build", ""])
        for stage in self.stages:
            self.assertRegex(stage.base, rf"^{BASE}$")
        # The documents' commands name it (tests/documents/commands_test.py).
        self.assertEqual(dockerfile.Contexts(self.stages), {"cuda"})

    def test_what_is_copied_is_there(self):
        ignored = [line.strip("/") for line in (ROOT / ".dockerignore").read_text().split()]
        cuda = Cache()["CUDAToolkit_ROOT"]
        made = [word for command in self.commands["build"] if command[0] in ("mkdir", "cp") for word in command[1:]]
        for stage in self.stages:
            for rest in stage.All("COPY"):
                origin, sources, _ = dockerfile.Copy(rest)
                for source in sources:
                    if origin is None:
                        self.assertTrue((ROOT / source).exists(), source)
                        self.assertFalse([line for line in ignored if fnmatch.fnmatch(source, line)], source)
                    elif origin == "cuda":
                        self.assertTrue(pathlib.Path(cuda, source).exists(), f"{source} of {cuda}")
                    else:
                        self.assertTrue([word for word in made if word.startswith(source)], f"{origin} makes no {source}")

    def test_what_is_run_of_the_repository_is_copied_before(self):
        (build,) = (stage for stage in self.stages if stage.name == "build")
        there = set()
        for instruction, rest in build.instructions:
            if instruction == "COPY" and dockerfile.Copy(rest)[0] is None:
                there |= set(dockerfile.Copy(rest)[1])
            for command in dockerfile.Commands(rest) if instruction == "RUN" else []:
                if "/" in command[0]:
                    self.assertTrue((ROOT / command[0]).stat().st_mode & 0o100, f"{command[0]} is no program")
                    self.assertTrue(there & {command[0], "."}, f"{command[0]} is not there yet")

    def test_the_installer_alone_says_what_building_needs(self):
        self.assertIn([INSTALLER], self.commands["build"])
        self.assertEqual(Installed(self.commands["build"]), [])
        for tool in ("cmake", "ninja-build", "g++", "binutils"):
            self.assertIn(tool, InstallersPackages())

    def test_the_build_makes_what_the_image_takes(self):
        (configure, build) = (command for command in self.commands["build"] if command[0] == "cmake")
        presets = json.loads((ROOT / "CMakePresets.json").read_text())
        preset = configure[configure.index("--preset") + 1]
        self.assertIn(preset, [each["name"] for each in presets["configurePresets"]])
        self.assertEqual(build[:4], ["cmake", "--build", "--preset", preset])
        self.assertIn(preset, [each["name"] for each in presets["buildPresets"]])
        for option in configure:
            if option.startswith("-D"):
                self.assertIn(option[2:].split("=")[0], Cache())
        targets = build[build.index("--target") + 1:]
        made = set(re.findall(r" -o (\S+)", Output("ninja", "-C", BUILD, "-t", "commands", *targets)))
        taken = [word.removeprefix(f"build/{preset}/") for command in self.commands["build"] if command[0] == "cp"
                 for word in command if word.startswith("build/")]
        self.assertGreater(len(taken), 5)
        for name in taken:
            self.assertTrue(made & {name, str(BUILD / name)}, f"{name} is of none of {targets}")

    def test_it_starts_what_it_has(self):
        (image,) = (stage for stage in self.stages if not stage.name)
        (entry,) = map(json.loads, image.All("ENTRYPOINT"))
        program = pathlib.Path(entry[0])
        copied = [command for command in self.commands["build"] if command[0] == "cp" and command[-1] == f"{program.parent}/"]
        self.assertIn(program.name, [pathlib.Path(word).name for command in copied for word in command[1:-1]])

    def test_packages_exist(self):
        if not IsDebian12():
            self.skipTest("this is no Debian 12: nobody here knows its packages")
        names = sorted({*InstallersPackages(), *Installed(self.commands[""])})
        self.assertGreater(len(names), 20)
        if not list(pathlib.Path("/var/lib/apt/lists").glob("*Packages*")):
            self.skipTest("apt has no lists: apt-get update")
        known = re.findall(r"^(\S+):$(?=\n.*\n  Candidate: (?!\(none\)))", Output("apt-cache", "policy", *names), re.MULTILINE)
        self.assertEqual(sorted(known), names)

    def test_the_image_has_the_libraries_that_its_programs_need(self):
        if not IsDebian12():
            self.skipTest("this is no Debian 12: nobody here knows which package has which library")
        has = Closure(Installed(self.commands[""]) + OF_EVERY_IMAGE)
        programs = ["bin/gpuloom", "bin/gpuloom-agent", "bin/gpuloom-scheduler", "bin/gpuloom-executor", "lib/softgpu/libcuda.so.1"]
        needed = set(re.findall(r"\(NEEDED\) +Shared library: \[(.+)\]", Output("readelf", "-d", *(BUILD / name for name in programs))))
        self.assertIn("libc.so.6", needed)
        owners = [line.split(": ") for line in Output("dpkg", "-S", *(f"*/x86_64-linux-gnu/{name}" for name in needed)).splitlines()]
        for library in needed:
            packages = {owner.split(":")[0] for owner, path in owners if path.endswith(f"/{library}")}
            self.assertTrue(packages & has, f"the image lacks {library}, which is in {sorted(packages)}")


def Cache():
    """The build's cache: {name: value}."""
    return dict(re.findall(r"^(\w+):\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE))


if __name__ == "__main__":
    unittest.main()
