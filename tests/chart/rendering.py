# SPDX-License-Identifier: Apache-2.0
"""Renders the chart by render.go, and says what its schema has against values."""

import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys

import jsonschema
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/gpuloom"


def Renderer(folder):
    """Builds render.go in a folder; the path of the program."""
    if not shutil.which("go"):
        sys.exit("chart: no Go: run deploy/install-deps.sh")
    # What Go has compiled, sprig above all, serves all tests and any number of them at a time.
    cache = ROOT / "build/go-cache"
    environment = dict(os.environ, GO111MODULE="off", GOPATH="/usr/share/gocode", GOCACHE=cache)
    subprocess.run(["go", "build", "-o", folder / "render", ROOT / "tests/chart/render.go"], env=environment, check=True)
    return folder / "render"


def Merge(into, values):
    """What helm makes of the chart's values and those of a user."""
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            Merge(into[key], value)
        elif value is None:
            into.pop(key, None)
        else:
            into[key] = copy.deepcopy(value)
    return into


def Refusals(values):
    """What helm has against values, by the chart's schema: "place: why", one each."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    merged = Merge(yaml.safe_load((CHART / "values.yaml").read_text()), values)
    return [f"{'.'.join(map(str, mistake.absolute_path))}: {mistake.message}"
            for mistake in jsonschema.Draft7Validator(schema).iter_errors(merged)]


class Rendering:
    """A renderer in a folder of its own. Not thread-safe."""

    def __init__(self, folder):
        self.folder = folder
        self.program = Renderer(folder)

    def Cluster(self, *objects):
        """The flags that let the chart ask a cluster with these objects."""
        path = self.folder / "cluster.yaml"
        path.write_text(yaml.safe_dump(list(objects)))
        return "-cluster", str(path)

    def Run(self, values, *flags, chart=CHART):
        """The ended process, whose output is everything that the chart makes of values."""
        path = self.folder / "values.yaml"
        path.write_text(yaml.safe_dump(values))
        return subprocess.run([self.program, *flags, chart, path], capture_output=True, text=True, check=False)

    def Render(self, values, *flags, chart=CHART):
        """(manifests by kind and name, everything as text)"""
        ended = self.Run(values, *flags, chart=chart)
        if ended.returncode:
            raise AssertionError(ended.stderr)
        manifests = {}
        for part in ended.stdout.split("\n---\n"):
            if "apiVersion:" in part:
                manifest = yaml.safe_load(part)
                manifests[manifest["kind"], manifest["metadata"]["name"]] = manifest
        return manifests, ended.stdout
