#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/chart-values.md is made from the chart's values.schema.json and values.yaml.

usage: values_reference.py          says how the page differs from what it should be; exit status 1 if it does
       values_reference.py --fix    writes it
"""

import difflib
import json
import pathlib
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/gpuloom"
PAGE = ROOT / "docs/chart-values.md"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())

HEAD = """# Values of the chart

Made from `charts/gpuloom/values.schema.json` and `charts/gpuloom/values.yaml` by `tests/chart/values_reference.py --fix`.
`helm` refuses a value that is not here, or not of its kind. What the values are for: [installation.md](installation.md); the
policy: [policy.md](policy.md).
"""
# Longer defaults stand in values.yaml alone.
MOST_SHOWN = 60


class Missing(Exception):
    """A value whose description is missing."""


def Resolved(schema):
    return SCHEMA["definitions"][schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema


def IsGroup(path, schema):
    return path != ("policy",) and Resolved(schema).get("additionalProperties") is False


def Kind(schema):
    """What a value can be, in a few words."""
    definition = Resolved(schema)
    if definition is not schema and "description" in definition:
        return definition["description"]
    if "enum" in definition:
        return ", ".join(f"`{json.dumps(value) if isinstance(value, bool) else value}`" for value in definition["enum"])
    if "enum" in definition.get("items", {}):
        return "a list of " + ", ".join(f"`{value}`" for value in definition["items"]["enum"])
    types = definition["type"] if isinstance(definition["type"], list) else [definition["type"]]
    words = {"string": "text", "integer": "a whole number", "boolean": "`true`, `false`", "object": "a map", "array": "a list",
             "null": "`null`"}
    text = " or ".join(words[name] for name in types)
    if "minimum" in definition and "maximum" in definition:
        text += f", {definition['minimum']} to {definition['maximum']}"
    return text


def Default(path):
    found = DEFAULTS
    for name in path:
        if not isinstance(found, dict) or name not in found:
            return ""
        found = found[name]
    text = f"`{json.dumps(found)}`"
    return text if len(text) <= MOST_SHOWN else "see `values.yaml`"


def Rows(schema, path=()):
    for name, below in Resolved(schema)["properties"].items():
        place = (*path, name)
        if IsGroup(place, below):
            yield from Rows(below, place)
        elif "description" not in below:
            raise Missing(f"values.schema.json: {'.'.join(place)} has no description")
        else:
            cells = [f"`{'.'.join(place)}`", Default(place), Kind(below), below["description"]]
            yield place, "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def Page():
    sections = {"All": []}
    for place, row in Rows(SCHEMA):
        name = place[0] if IsGroup(place[:1], SCHEMA["properties"][place[0]]) else "All"
        sections.setdefault(name, []).append(row)
    text = HEAD
    for name, rows in sections.items():
        title = "Common values" if name == "All" else name
        text += f"\n## {title}\n\n| value | default | can be | |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
    return text


def main():
    page = Page()
    if sys.argv[1:] == ["--fix"]:
        PAGE.write_text(page)
        return 0
    if sys.argv[1:]:
        sys.exit(__doc__)
    there = PAGE.read_text() if PAGE.exists() else ""
    difference = list(difflib.unified_diff(there.splitlines(), page.splitlines(), "docs/chart-values.md", "what the chart has", lineterm=""))
    print("\n".join([*difference, f"values_reference: {len(difference)} lines differ"]))
    if difference:
        print("run tests/chart/values_reference.py --fix")
    return 1 if difference else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Missing as mistake:
        sys.exit(f"values_reference: {mistake}")
