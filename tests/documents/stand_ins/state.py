# SPDX-License-Identifier: Apache-2.0
"""What the stand-ins of one document remember of what its reader did before. One command runs at a time."""

import json
import os
import pathlib
import sys

FOLDER = pathlib.Path(os.environ.get("GPULOOM_STAND_IN_STATE", "."))
EMPTY = {"built": [], "pushed": [], "releases": {}, "namespaces": []}


def Load():
    path = FOLDER / "state.json"
    return json.loads(path.read_text()) if path.exists() else json.loads(json.dumps(EMPTY))


def Save(state):
    (FOLDER / "state.json").write_text(json.dumps(state))


def Refuse(why):
    """What the real program would not do."""
    sys.exit(f"{pathlib.Path(sys.argv[0]).name} (stand-in): {why}")
