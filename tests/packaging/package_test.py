#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages that cpack makes: what is in them, what they depend on, what lintian and SPDX ask of them, and that they
run from the folder into which they are unpacked.

usage: package_test.py BUILD_FOLDER   where gpuloom_installed is built
"""

import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import installed
from installed import Files, Machine, Output

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
FOLDER = BUILD / "packaging/package"
PACKAGES = ["gpuloom", "gpuloom-agent", "gpuloom-softgpu", "kubectl-gpuloom"]
# What lintian says for a reason: {tag: why}
OVERLOOKED = {
    "malformed-contact": "who publishes the packages says whose they are: GPULOOM_PACKAGE_MAINTAINER",
    "bogus-mail-host-in-debian-changelog": "the same",
    "initial-upload-closes-no-bugs": "they are not of Debian's archive",
    "statically-linked-binary": "gpuloom-trace runs in containers beside any C library, or none",
    "no-manual-page": "gpuloom-agent and kubectl-gpuloom have --help, and nobody types kubectl_complete-gpuloom",
}


@unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "packages are made on Debian")
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        made = subprocess.run(["cpack", "-G", "DEB", "-B", FOLDER], cwd=BUILD, capture_output=True, text=True, check=False)
        if made.returncode:
            raise AssertionError(made.stdout + made.stderr)
        cls.debs = {path.name.split("_")[0]: path for path in FOLDER.glob("*.deb")}
        cls.folders = {}
        (FOLDER / "unpacked").mkdir()
        for name, path in cls.debs.items():
            cls.folders[name] = FOLDER / "unpacked" / name
            Output("dpkg-deb", "--extract", path, cls.folders[name])
            Output("dpkg-deb", "--control", path, cls.folders[name].with_suffix(".control"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)

    def Field(self, name, field):
        return Output("dpkg-deb", "--field", self.debs[name], field).strip()

    def test_each_has_its_part_and_depends_on_what_it_needs(self):
        self.assertEqual(sorted(self.debs), PACKAGES)
        version = self.Field("gpuloom", "Version")
        for name in ("gpuloom-agent", "gpuloom-softgpu"):
            self.assertIn(f"gpuloom (= {version})", self.Field(name, "Depends"))
        # What shares a GPU without Kubernetes needs nothing of what speaks to a kubelet.
        self.assertNotRegex(self.Field("gpuloom", "Depends"), "grpc|protobuf|absl")
        self.assertRegex(self.Field("gpuloom-agent", "Depends"), r"libgrpc\+\+1\.51 \(")
        for name, folder in self.folders.items():
            for path in folder.rglob("*"):
                self.assertFalse(path.is_file() and path.stat().st_mode & 0o022, path)
        self.assertEqual(self.Field("kubectl-gpuloom", "Architecture"), "all")

    def test_an_administrators_policy_survives_an_upgrade(self):
        conffiles = (self.folders["gpuloom-agent"].with_suffix(".control") / "conffiles").read_text().split()
        self.assertEqual(conffiles, ["/" + name for name in Files(self.folders["gpuloom-agent"]) if name.startswith("etc/")])

    def test_scripts_do_as_debian_asks(self):
        for name in PACKAGES:
            for script in self.folders[name].with_suffix(".control").glob("p*"):
                Output("shellcheck", "--severity=warning", script)
                Output("sh", "-n", script)

    def test_lintian_finds_nothing(self):
        if not shutil.which("lintian"):
            self.skipTest("no lintian")
        said = Output("lintian", "--no-cfg", "--allow-root", "--fail-on", "none", *self.debs.values())
        tags = re.findall(r"^([EW]: \S+ (\S+).*)$", said, re.MULTILINE)
        self.assertEqual([line for line, tag in tags if tag not in OVERLOOKED], [])

    def test_unpacked_they_run(self):
        prefix = FOLDER / "together"
        for folder in self.folders.values():
            shutil.copytree(folder / "usr", prefix, dirs_exist_ok=True)
        machine = Machine(self, FOLDER / "machine")
        installed.RunsATenant(self, prefix, machine.folder / "state")
        units = [path.read_text() for path in prefix.glob("lib/systemd/system/*")]
        self.assertEqual(len(units), 3)
        for command in re.findall(r"^ExecStart=(\S+)", "\n".join(units), re.MULTILINE):
            self.assertTrue((prefix / command.removeprefix("/usr/")).exists(), command)

    def test_an_upgrade_keeps_the_policy_and_a_purge_leaves_nothing(self):
        # Scripts are run without chroot, and know by DPKG_ROOT that the machine is another one's.
        root = FOLDER / "machine's root"
        dpkg = ["dpkg", f"--root={root}", "--force-script-chrootless", "--force-depends", "--force-confold", "--force-not-root"]
        for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"):
            (root / folder).mkdir(parents=True)
        (root / "var/lib/dpkg/status").touch()
        before = set(Files(root))
        Output(*dpkg, "--install", *self.debs.values())
        policy = root / "etc/gpuloom/policy.yaml"
        policy.write_text("defaults: {memory: 1GiB}\n")
        Output(*dpkg, "--install", *self.debs.values())
        self.assertEqual(policy.read_text(), "defaults: {memory: 1GiB}\n")
        # What services leave, and what an administrator has enabled.
        left = ["var/lib/gpuloom/gpus/GPU-1/lock", "var/lib/gpuloom/shim/libgpuloom-1.so", "run/gpuloom/gpu0/control.sock",
                "var/lib/kubelet/device-plugins/gpuloom-7b16defe.sock",
                "etc/systemd/system/multi-user.target.wants/gpuloom-agent.service",
                "etc/systemd/system/multi-user.target.wants/gpuloom-scheduler@0.service"]
        others = ["var/lib/kubelet/device-plugins/nvidia.sock", "etc/systemd/system/multi-user.target.wants/kubelet.service"]
        for name in left + others:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
        Output(*dpkg, "--remove", *PACKAGES)
        self.assertTrue(policy.exists() and (root / left[0]).exists(), "removed, not purged: a reinstallation goes on with them")
        Output(*dpkg, "--purge", *PACKAGES)
        files = {name for name in Files(root) if not name.startswith("var/lib/dpkg/") and not name.startswith("var/log/")}
        self.assertEqual(files - before, set(others))
        self.assertFalse((root / "etc/gpuloom").exists() or (root / "var/lib/gpuloom").exists())

    def test_each_says_what_it_is_made_of(self):
        for name, folder in self.folders.items():
            with self.subTest(name):
                self.CheckDocument(folder, f"usr/share/doc/{name}/{name}.spdx.json")

    def CheckDocument(self, folder, path):
        document = json.loads((folder / path).read_text())
        self.assertEqual((document["spdxVersion"], document["SPDXID"]), ("SPDX-2.3", "SPDXRef-DOCUMENT"))
        self.assertRegex(document["creationInfo"]["created"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        elements = [document, *document["packages"], *document["files"]]
        identifiers = [element["SPDXID"] for element in elements]
        self.assertEqual(len(identifiers), len(set(identifiers)))
        for identifier in identifiers:
            self.assertRegex(identifier, r"^SPDXRef-[A-Za-z0-9.-]+$")
        for relationship in document["relationships"]:
            self.assertLessEqual({relationship["spdxElementId"], relationship["relatedSpdxElement"]}, set(identifiers))
        # Every file of the package, unchanged, but for the document itself.
        listed = {file["fileName"]: {each["algorithm"]: each["checksumValue"] for each in file["checksums"]}
                  for file in document["files"]}
        self.assertEqual(set(listed), {f"./{name}" for name in Files(folder) if name != path})
        for name, sums in listed.items():
            self.assertEqual(sums["SHA256"], hashlib.sha256((folder / name).read_bytes()).hexdigest(), name)
        # What the programs load is in it, with the version that is here.
        versions = {package["name"]: package["versionInfo"] for package in document["packages"]}
        linked = {(each["relatedSpdxElement"], each["relationshipType"]) for each in document["relationships"]}
        for file in folder.rglob("*"):
            if file.is_file() and file.read_bytes()[:4] == b"\x7fELF":
                for library in re.findall(r"\(NEEDED\).*\[(.+)\]", Output("readelf", "-dW", file)):
                    owner = Output("dpkg-query", "-S", f"*/x86_64-linux-gnu/{library}").split(":")[0]
                    self.assertEqual(versions[owner], Output("dpkg-query", "-W", "-f", "${Version}", f"{owner}:amd64"))
                    self.assertIn((f"SPDXRef-deb-{owner.replace('+', '-')}", "DYNAMIC_LINK"), linked)
        # What is linked into them is in it and in the copyright; what was compiled in is in it.
        has_yaml = ("SPDXRef-deb-libyaml-cpp-dev", "STATIC_LINK") in linked
        self.assertEqual(has_yaml, "yaml-cpp" in (folder / path).with_name("copyright").read_text())
        if "/doc/gpuloom/" in path:
            self.assertTrue(has_yaml)
            self.assertLessEqual({"libcli11-dev", "nlohmann-json3-dev", "libboost1.74-dev", "CUDA Toolkit headers"}, set(versions))


if __name__ == "__main__":
    unittest.main()
