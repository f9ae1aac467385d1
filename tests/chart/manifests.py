#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/manifests/ is what the chart makes, for clusters without helm.

usage: manifests.py          says how the files differ from what they should be; exit status 1 if they do
       manifests.py --fix    writes them
"""

import difflib
import pathlib
import re
import sys
import tempfile

import yaml
from rendering import ROOT, Rendering

FOLDER = ROOT / "deploy/manifests"
# {file: (what it is for, values)}
FILES = {
    "gpuloom.yaml": ("GPUs of NVIDIA", {}),
    "gpuloom-softgpu.yaml": ("software GPUs, on every node", yaml.safe_load((ROOT / "deploy/examples/values-softgpu.yaml").read_text())),
}
HEAD = """# SPDX-License-Identifier: Apache-2.0
# gpuloom without helm, on {what}: docs/installation.md, Without Helm. Made from charts/gpuloom by
# tests/chart/manifests.py --fix.
apiVersion: v1
kind: Namespace
metadata:
  name: gpuloom-system
  labels:
    # The pods mount directories of the node.
    pod-security.kubernetes.io/enforce: privileged
"""


def Objects(text):
    """The chart's objects, as text: no notes, and nothing that only helm runs."""
    for part in re.split(r"^---\n", text, flags=re.MULTILINE):
        body = re.sub(r"^# Source: .*\n", "", part).strip("\n")
        manifest = yaml.safe_load(body) if "\napiVersion:" in f"\n{body}" else None
        if isinstance(manifest, dict) and "helm.sh/hook" not in manifest["metadata"].get("annotations", {}):
            yield "\n".join(line.rstrip() for line in body.splitlines()) + "\n"


def Made(rendering, what, values):
    text = rendering.Render(values, "-service", "kubectl")[1]
    return "---\n".join([HEAD.format(what=what), *Objects(text)])


def main():
    if sys.argv[1:] not in ([], ["--fix"]):
        sys.exit(__doc__)
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        rendering = Rendering(pathlib.Path(folder))
        for name, (what, values) in FILES.items():
            path = FOLDER / name
            made = Made(rendering, what, values)
            if sys.argv[1:]:
                path.parent.mkdir(exist_ok=True)
                path.write_text(made)
            there = path.read_text() if path.exists() else ""
            differences += difflib.unified_diff(there.splitlines(), made.splitlines(), f"deploy/manifests/{name}", "the chart", lineterm="")
    unknown = {path.name for path in FOLDER.glob("*")} - set(FILES)
    differences += [f"deploy/manifests/{name}: nothing makes it" for name in sorted(unknown)]
    print("\n".join([*differences, f"manifests: {len(differences)} lines differ"]))
    if differences:
        print("run tests/chart/manifests.py --fix")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
