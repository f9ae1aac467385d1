#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Debian wants of every package and `cmake --install` does not make: manual pages compressed, a copyright file, a changelog,
what lintian is to overlook; and our list of what it is made of.

usage: complete.py --build BUILD --version VERSION --maintainer TEXT STAGED   STAGED has a folder for each component
"""

import argparse
import email.utils
import gzip
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))
import sbom  # noqa: E402

NAMES = {"node": "gpuloom", "agent": "gpuloom-agent", "softgpu": "gpuloom-softgpu", "kubectl": "kubectl-gpuloom"}
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: gpuloom

Files: *
Copyright: 2026 The gpuloom authors
License: Apache-2.0
 On Debian systems, the full text is in /usr/share/common-licenses/Apache-2.0.
"""
# Archives that are linked into programs bring their licence along.
LICENSES = {"libyaml-cpp-dev": ("yaml-cpp is part of the programs", "/usr/share/doc/libyaml-cpp-dev/copyright")}


def Compress(path):
    with open(f"{path}.gz", "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(path.read_bytes())
    path.unlink()


def Changelog(name, version, maintainer):
    if "<" not in maintainer:
        maintainer += " <>"
    date = email.utils.format_datetime(sbom.Time())
    return f"{name} ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {maintainer}  {date}\n"


def Complete(component, folder, build, version, maintainer):
    name = NAMES[component]
    share = folder / "usr/share"
    doc = share / "doc" / name
    doc.mkdir(parents=True, exist_ok=True)
    for page in sorted(share.glob("man/man*/*")):
        Compress(page)
    (doc / "LICENSE").unlink(missing_ok=True)  # every Debian system has it
    if (doc / "CHANGELOG.md").exists():
        Compress((doc / "CHANGELOG.md").rename(doc / "changelog"))
    (doc / "changelog.Debian").write_text(Changelog(name, version, maintainer))
    Compress(doc / "changelog.Debian")
    text = COPYRIGHT
    for package in build.Archives(folder):
        title, path = LICENSES[package]
        text += f"\n{title}:\n\n{pathlib.Path(path).read_text()}"
    (doc / "copyright").write_text(text)
    (doc / f"{name}.spdx.json").write_text(sbom.Sbom(build, folder, name, version))
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def Main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--maintainer", required=True)
    parser.add_argument("staged", type=pathlib.Path)
    arguments = parser.parse_args()
    build = sbom.Build(arguments.build)
    for component in sorted(NAMES):
        if (arguments.staged / component).exists():
            Complete(component, arguments.staged / component, build, arguments.version, arguments.maintainer)


if __name__ == "__main__":
    Main()
