#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An upgrade from every recorded release keeps each object's name and each DaemonSet's selector, which Kubernetes does not let
change, and with it the schedulers, which carry the tenants; also with --reuse-values, which knows no new value."""

import pathlib
import sys
import tempfile
import unittest

import yaml
from rendering import ROOT, Refusals, Rendering

sys.path.insert(0, str(ROOT / "tests/versions"))
import releases  # noqa: E402

NAMES = ["gpuloom", "a", "team-gpuloom-b", "x" * 53]
VALUES = [{}, {"softgpu": {"enabled": True}}, {"securityContextConstraints": "privileged", "serviceAccount": {"name": "own"}}]


def Selectors(manifests):
    return {name: manifest["spec"]["selector"] for (kind, name), manifest in manifests.items() if kind == "DaemonSet"}


def HostPaths(manifests):
    return {name: [volume["hostPath"]["path"] for volume in manifest["spec"]["template"]["spec"]["volumes"] if "hostPath" in volume]
            for (kind, name), manifest in manifests.items() if kind == "DaemonSet"}


class Upgrade(unittest.TestCase):
    def setUp(self):
        if releases.Git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
            self.skipTest("the history is not here: git fetch --unshallow")

    def test_names_and_selectors_are_kept(self):
        for release in releases.Releases():
            with tempfile.TemporaryDirectory() as parent:
                folder = pathlib.Path(parent, "sources")
                releases.Take(folder, release["version"])
                old_chart = folder / "charts/gpuloom"
                for name in NAMES:
                    for values in VALUES:
                        with self.subTest(release=release["version"], name=name, values=values):
                            self.Check(old_chart, name, values)

    def Check(self, old_chart, name, values):
        old, _ = RENDERING.Render(values, "-release", name, chart=old_chart)
        self.assertEqual(len(Selectors(old)), 2)
        reused = ["-defaults", str(old_chart / "values.yaml")]
        for flags in ([], reused):
            new, _ = RENDERING.Render(values, "-release", name, "-upgrade", *flags)
            self.assertEqual(set(old) - set(new), set(), "an object has another name")
            self.assertEqual(Selectors(new), Selectors(old))
            self.assertEqual(HostPaths(new), HostPaths(old))
            for kind, object_name in old:
                if kind == "DaemonSet":
                    selected = new[kind, object_name]["spec"]["selector"]["matchLabels"]
                    self.assertLessEqual(selected.items(), new[kind, object_name]["spec"]["template"]["metadata"]["labels"].items())
        old_values = yaml.safe_load((old_chart / "values.yaml").read_text())
        self.assertEqual(Refusals(old_values), [], "values of the old release")

    def test_new_values_can_be_set_on_reused_ones(self):
        for release in releases.Releases():
            with tempfile.TemporaryDirectory() as parent:
                folder = pathlib.Path(parent, "sources")
                releases.Take(folder, release["version"])
                reused = ["-upgrade", "-defaults", str(folder / "charts/gpuloom/values.yaml")]
                for name in ("podMonitor", "serviceMonitor", "prometheusRule", "grafanaDashboard", "service"):
                    manifests, _ = RENDERING.Render({"metrics": {name: {"enabled": True}}}, *reused)
                    whole, _ = RENDERING.Render({"metrics": {name: {"enabled": True}}})
                    self.assertEqual(set(manifests), set(whole), name)
                    for key in set(manifests) - {key for key in manifests if key[0] == "DaemonSet"}:
                        self.assertEqual(manifests[key], whole[key], name)
                for values in ({"removeState": True}, {"networkPolicy": {"enabled": True}}, {"affinityPresets": ["linuxAmd64"]}):
                    self.assertEqual(RENDERING.Render(values, *reused)[0], RENDERING.Render(values)[0])

    def test_another_name_for_the_schedulers_is_refused(self):
        present = [manifest for manifest in RENDERING.Render({})[0].values() if manifest["kind"] == "DaemonSet"]
        another = RENDERING.Render({}, "-release", "b")[0]["DaemonSet", "b-gpuloom-schedulers"]
        stranger = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "other", "namespace": "gpuloom-system"}}
        cluster = RENDERING.Cluster(*present, another, stranger)
        for flags, values, is_kept in [(["-upgrade"], {}, True), (["-upgrade"], {"fullnameOverride": "gpuloom"}, True),
                                       (["-upgrade"], {"fullnameOverride": "own"}, False), ([], {"fullnameOverride": "own"}, True),
                                       (["-upgrade"], {"nameOverride": "gpus"}, False), (["-upgrade", "-release", "c"], {}, True)]:
            with self.subTest(flags=flags, values=values):
                ended = RENDERING.Run(values, *flags, *cluster)
                self.assertEqual(ended.returncode == 0, is_kept, ended.stderr)
                if not is_kept:
                    self.assertIn("the CUDA work of every tenant would end", ended.stderr)
                    self.assertIn("--set fullnameOverride=gpuloom.", ended.stderr)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_name:
        RENDERING = Rendering(pathlib.Path(folder_name))
        unittest.main()
