#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an installation is made of, as an SPDX 2.3 document: its files, the shared libraries that its programs load, and the
packages whose headers or archives were compiled into them. Taken from the build folder's own record of what each object was
made of, from the programs themselves, and from dpkg; so it must run where they were built, on Debian.

usage: sbom.py --build BUILD --root FOLDER [--name NAME] [--version VERSION] [-o FILE]

FOLDER is what `cmake --install` made of BUILD, a build by ninja.
"""

import argparse
import datetime
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

CREATOR = "Tool: gpuloom-sbom"
LICENSE = "Apache-2.0"
OURS = "SPDXRef-gpuloom"


def Output(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


def Digest(path, name):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, name).hexdigest()


def Identifier(text):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", text)


class Build:
    """What the build folder knows of its programs."""

    def __init__(self, folder):
        self.folder = folder.resolve()
        self.cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (self.folder / "CMakeCache.txt").read_text(), re.MULTILINE))
        self.headers = {}  # of each object
        for block in Output("ninja", "-C", self.folder, "-t", "deps").split("\n\n"):
            head, *lines = block.splitlines() or [""]
            self.headers[head.split(": ")[0]] = [line.strip() for line in lines]

    def Find(self, name):
        """The file that was installed under this name, relative to the folder; None if the build has not made it."""
        made = [path for place in ("bin", "lib", "lib/softgpu", "tests") for path in [self.folder / place / name] if path.exists()]
        return made[0].resolve().relative_to(self.folder) if made else None

    def Ingredients(self, file):
        """Files outside the repository that were compiled or linked into it: headers, archives."""
        found = set()
        for name in Output("ninja", "-C", self.folder, "-t", "inputs", file).splitlines():
            if name.endswith(".o"):
                found.update(self.headers.get(name, []))
            elif name.endswith(".a") and name.startswith("/"):
                found.add(name)
        source = self.cache["CMAKE_HOME_DIRECTORY"]
        absolute = {os.path.normpath(self.folder / name) for name in found}
        return {name for name in absolute if not name.startswith((source + "/", str(self.folder) + "/"))}

    def Archives(self, root):
        """The packages whose archives are part of the programs below `root`."""
        programs = [self.Find(path.name) for path in sorted(root.rglob("*")) if path.is_file() and IsElf(path)]
        linked = {name for program in programs for name in self.Ingredients(program) if name.endswith(".a")}
        return sorted(set(Owners(frozenset(linked)).values()))


@functools.cache
def Owners(paths):
    """{path: Debian package} of a frozenset, without those that no package has."""
    owners = {}
    paths = sorted(paths)
    for begin in range(0, len(paths), 500):
        ran = subprocess.run(["dpkg-query", "-S", *paths[begin:begin + 500]], capture_output=True, text=True, check=False)
        for line in ran.stdout.splitlines():
            packages, _, path = line.partition(": ")
            owners[path] = packages.split(",")[0].split(":")[0]
    return owners


def Needed(path):
    return re.findall(r"\(NEEDED\) +Shared library: \[(.+)\]", Output("readelf", "-dW", path))


def IsElf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def Time():
    """Of the source, so that the same source makes the same document."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    if seconds is None:
        here = pathlib.Path(__file__).resolve().parent
        ran = subprocess.run(["git", "-c", "safe.directory=*", "-C", here, "log", "-1", "--format=%ct"], capture_output=True, text=True,
                             check=False)
        seconds = ran.stdout.strip() or time.time()  # no history is here
    return datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)


@functools.cache
def DebianPackage(name):
    version = Output("dpkg-query", "-W", "-f", "${Version}\n", name).splitlines()[0]
    return {"SPDXID": Identifier(f"deb-{name}"), "name": name, "versionInfo": version, "supplier": "Organization: Debian",
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
            "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": f"pkg:deb/debian/{name}@{version.replace(':', '%3A')}?distro=debian-12"}]}


def CudaToolkit(headers):
    """The toolkit comes from no package of Debian's."""
    text = (pathlib.Path(os.path.commonpath([os.path.dirname(path) for path in headers])) / "cuda.h").read_text()
    version = int(re.search(r"#define CUDA_VERSION (\d+)", text)[1])
    return {"SPDXID": "SPDXRef-cuda-toolkit", "name": "CUDA Toolkit headers", "versionInfo": f"{version // 1000}.{version % 1000 // 10}",
            "supplier": "Organization: NVIDIA", "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION"}


class Document:
    def __init__(self, name, version):
        self.packages = {}
        self.files = []
        self.relationships = []
        self.ours = {"SPDXID": OURS, "name": name, "versionInfo": version, "supplier": "Organization: The gpuloom authors",
                     "downloadLocation": "NOASSERTION", "filesAnalyzed": True, "licenseConcluded": LICENSE,
                     "licenseDeclared": LICENSE, "licenseInfoFromFiles": [LICENSE], "copyrightText": "The gpuloom authors"}
        self.Relate("SPDXRef-DOCUMENT", "DESCRIBES", OURS)

    def Relate(self, one, how, other):
        relationship = {"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other}
        if relationship not in self.relationships:
            self.relationships.append(relationship)

    def Package(self, package):
        return self.packages.setdefault(package["SPDXID"], package)["SPDXID"]

    def AddFile(self, root, path):
        name = f"./{path.relative_to(root)}"
        file = {"SPDXID": Identifier(f"file-{name[2:]}"), "fileName": name,
                "checksums": [{"algorithm": "SHA1", "checksumValue": Digest(path, "sha1")},
                              {"algorithm": "SHA256", "checksumValue": Digest(path, "sha256")}],
                "licenseConcluded": LICENSE, "licenseInfoInFiles": [LICENSE], "copyrightText": "The gpuloom authors"}
        self.files.append(file)
        self.Relate(OURS, "CONTAINS", file["SPDXID"])
        return file["SPDXID"]

    def AddProgram(self, file, path, build):
        """What the program `path`, which stands in the document as `file`, is made of."""
        needed = Needed(path)
        libraries = Owners(frozenset(f"*/x86_64-linux-gnu/{name}" for name in needed))
        for name in needed:
            owners = {owner for known, owner in libraries.items() if known.endswith(f"/{name}")}
            for owner in owners:
                self.Relate(file, "DYNAMIC_LINK", self.Package(DebianPackage(owner)))
            if not owners:
                raise SystemExit(f"sbom: {path} needs {name}, which is of no package: install it, or build without it")
        built = build.Find(path.name)
        if built is None:
            raise SystemExit(f"sbom: {build.folder} has not built {path.name}: is it the build folder of {path}?")
        ingredients = build.Ingredients(built)
        cuda = {name for name in ingredients if name.startswith(build.cache["CUDAToolkit_ROOT"] + "/")}
        if cuda:
            self.Relate(self.Package(CudaToolkit(cuda)), "BUILD_DEPENDENCY_OF", file)
        for name, owner in sorted(Owners(frozenset(ingredients - cuda)).items()):
            package = self.Package(DebianPackage(owner))
            if name.endswith(".a"):
                self.Relate(file, "STATIC_LINK", package)
            else:
                self.Relate(package, "BUILD_DEPENDENCY_OF", file)

    def Text(self):
        digests = sorted(file["checksums"][0]["checksumValue"] for file in self.files)
        code = hashlib.sha1("".join(digests).encode()).hexdigest()
        self.ours["packageVerificationCode"] = {"packageVerificationCodeValue": code}
        return json.dumps({
            "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"{self.ours['name']}-{self.ours['versionInfo']}",
            "documentNamespace": f"urn:gpuloom:sbom:{self.ours['name']}:{self.ours['versionInfo']}:{code}",
            "creationInfo": {"created": Time().strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": [CREATOR]},
            "packages": [self.ours, *(self.packages[key] for key in sorted(self.packages))],
            "files": self.files, "relationships": self.relationships}, indent=1) + "\n"


def Sbom(build, root, name, version):
    document = Document(name, version or build.cache["CMAKE_PROJECT_VERSION"])
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            file = document.AddFile(root, path)
            if IsElf(path):
                document.AddProgram(file, path, build)
    if not document.files:
        raise SystemExit(f"sbom: nothing is installed in {root}")
    return document.Text()


def Main():
    parser = argparse.ArgumentParser(description="Writes what an installation is made of, as SPDX.")
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--name", default="gpuloom")
    parser.add_argument("--version", help="default: the build's")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="default: standard output")
    arguments = parser.parse_args()
    text = Sbom(Build(arguments.build), arguments.root, arguments.name, arguments.version)
    if arguments.output:
        arguments.output.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    Main()
