# SPDX-License-Identifier: Apache-2.0
"""What the stand-ins of one document remember of what its reader did before. One command runs at a time."""

import json
import os
import pathlib
import re
import sys

FOLDER = pathlib.Path(os.environ.get("GPULOOM_STAND_IN_STATE", "."))
# objects: by namespace, each as KIND/NAME.
EMPTY = {"built": [], "pushed": [], "releases": {}, "namespaces": [], "objects": {}}


def Load():
    path = FOLDER / "state.json"
    return json.loads(path.read_text()) if path.exists() else json.loads(json.dumps(EMPTY))


def Save(state):
    (FOLDER / "state.json").write_text(json.dumps(state))


def Images(manifests):
    """What the pods of manifests run."""
    return set(re.findall(r'^\s*image: "?([^"\s]+)', manifests, re.MULTILINE))


def Refuse(why):
    """What the real program would not do."""
    sys.exit(f"{pathlib.Path(sys.argv[0]).name} (stand-in): {why}")
