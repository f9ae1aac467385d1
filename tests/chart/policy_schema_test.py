#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The agent and the JSON schema say the same of a policy: docs/policy.schema.json, and its copy in the chart.

usage: policy_schema_test.py GPULOOM_AGENT

What a schema cannot say, and so stands in no table here: a key or namespace that is written twice, a second YAML
document, a size beyond 64 bits, how a truth value or a whole number is spelled (YAML 1.1 has yes and on for true, the agent has true),
a pod's priority that is above its namespace's, and what depends on the node: whether its GPUs have as much memory as is promised.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import jsonschema
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
AGENT = sys.argv.pop(1)

SIZES = ["2MiB", "2Mi", "3MiB", "10MiB", "0002MiB", "1GiB", "1Gi", "16GiB", "1TiB", "2Ti", "2048KiB", "2049Ki", "2050KiB", "2099KiB",
         "2100KiB", "3000KiB", "9999KiB", "10000KiB", "auto"]
NO_SIZES = ["1MiB", "1Mi", "0MiB", "0GiB", "00Gi", "1KiB", "2047KiB", "999KiB", "1999KiB", "2000KiB", "8GB", "8G", "8 GiB", "1.5GiB",
            "8gib", "-1GiB", "+1GiB", "GiB", "lots", "AUTO", "4294967296", "4294967296B", "0", "8GiBs", "' 8GiB'", "''", "null", "true",
            "[8GiB]", "{GiB: 8}", "4.29e+09", "0x8GiB"]
DOMAINS = ["pod", "namespace", "node", "inference", "team-a", "3com", "'123'", "'true'", "a", "-", "x" * 63]
NO_DOMAINS = ["Team_A", "team.a", "''", "null", "[pod]", "{pod: true}", "x" * 64, "123", "-5", "2001-01-01", "0x1f", "true", "off", "a b",
              "'a/b'", "1.5"]
NAMESPACES = ["a", "team-a", "'*'", "team-*", "'t?am'", "kube-system", "'123'", "x" * 63]
NO_NAMESPACES = ["Team", "a_b", "a.b", "''", "x" * 64, "'[ab]'", "a/b"]

GOOD = ["{}", "---\n{}", "overcommit: true", "overcommit: false", "defaults:", "namespaces:",
        "defaults: {}", "namespaces: {}", "namespaces: {a: }", "namespaces: {a: {}}",
        "namespaces: {a: {memory: 8GiB, trustDomain: pod}, 'b-*': {memory: auto}}",
        "namespaces: {a: {pods: }}", "namespaces: {a: {pods: {}}}", "namespaces: {a: {pods: {p: }}}"]
BAD = ["", "null", "~", "---", "# nothing but a comment", "- a", "text", "3", "default: {}", "weights: {}", "Defaults: {}", "defaults: 3", "defaults: [memory]", "namespaces: [a]",
       "namespaces: a", "namespaces: {a: 3}", "namespaces: {a: [memory]}", "namespaces: {a: {memroy: 8GiB}}",
       "namespaces: {a: {trustdomain: pod}}", "namespaces: {a: {overcommit: true}}", "overcommit:", "overcommit: maybe", "overcommit: 1",
       "overcommit: 'true'", "overcommit: [true]", "memory: 8GiB", "trustDomain: pod", "defaults: {weights: 3}",
       "defaults: {pods: {}}", "namespaces: {a: {pods: [p]}}", "namespaces: {a: {pods: {p: 3}}}",
       "namespaces: {a: {pods: {p: {memory: 1GiB}}}}", "namespaces: {a: {pods: {p: {maxTenants: 1}}}}",
       "namespaces: {a: {pods: {p: {rescueAfter: 1s}}}}",
       "namespaces: {a: {pods: {p: {pods: {}}}}}"]
# Of what a pod's rule may set, too.
VALUES = {"weight": ["1", "100", "1000"],
          "priority": ["normal", "low", "'low'"],
          "smPercent": ["1%", "25%", "100%"],
          "smReserved": ["1%", "99%"],
          "timeShareMax": ["1%", "25%", "99%", "100%", "'5%'"],
          "memoryWait": ["0s", "1s", "30s", "999s", "1000s", "3600s", "0m", "5m", "60m", "0h", "1h", "'5m'"],
          "maxKernelTime": ["{warn: 1s}", "{end: 3600s}", "{warn: 30s, end: 5m}", "{end: 1h, warn: 60m}", "{end: never}", "{warn: '5s'}"],
          "trace": ["none", "'none'"],
          "deny": ["true", "false"],
          "gpus": ["[0]", "[0, 1023]", "[GPU-8d7e6a90-3f6c-4b1a-9d52-0c7f5e1b2a34]", "['GPU-8d*', 3]", "[NVIDIA H200]", "['*']"]}
NO_VALUES = {"weight": ["0", "1001", "-1", "1.5", "'5'", "[5]", "null", "true", "many"],
             "priority": ["highest", "High", "''", "1", "null", "[low]", "true"],
             "smPercent": ["25", "0%", "101%", "2.5%", "null"],
             "smReserved": ["25", "0%", "101%"],
             "timeShareMax": ["25", "0%", "101%", "05%", "2.5%", "'%'", "'25 %'", "null", "[5%]", "0.25"],
             "memoryWait": ["30", "0", "3601s", "4000s", "10000s", "61m", "2h", "1.5m", "05s", "00s", "-1s", "100ms", "'5 m'", "s", "1d", "null",
                            "[5s]", "forever"],
             "maxKernelTime": ["30s", "null", "{}", "[5s]", "{wran: 5s}", "{warn: 0s}", "{warn: 0m}", "{end: 0h}", "{end: 3601s}", "{end: 61m}",
                               "{end: 2h}", "{end: 30}", "{end: 01s}", "{end: 500ms}", "{end: null}", "{end: [5s]}", "{end: Never}",
                               "{warn: 5s, limit: 6s}"],
             "trace": ["all", "None", "true", "null", "[own]", "''", "1"],
             "deny": ["'true'", "1", "null", "[]", "never"],
             "gpus": ["0", "[]", "null", "['0']", "[-1]", "[1024]", "[1.5]", "[true]", "[[0]]", "[null]", "['']", "GPU-8d7e6a90",
                      "[\"a\\nb\"]", "['%s']" % ("x" * 129)]}
PODS = ["a", "'*'", "server-*", "'s?rver.example-1'", "server-*/main", "'*/*'", "x" * 253 + "/" + "y" * 63]
NO_PODS = ["A", "''", "a_b", "a/", "/a", "a/b/c", "a/b.c", "x" * 254, "a/" + "y" * 64]
for rule in ["defaults: {%s}", "namespaces: {a: {%s}}", "namespaces: {a: {pods: {p: {%s}}}}"]:
    GOOD += [rule % f"{key}: {value}" for key, values in VALUES.items() for value in values]
    BAD += [rule % f"{key}: {value}" for key, values in NO_VALUES.items() for value in values]
GOOD += ["defaults: {trace: own}", "namespaces: {a: {trace: own, pods: {p: {trace: own}}}}",
         "{defaults: {trace: 'own'}, namespaces: {a: {pods: {p: {trace: own}, q: {trace: none}}}}}"]
GOOD += ["namespaces: {a: {pods: {%s: {weight: 5}}}}" % name for name in PODS]
BAD += ["namespaces: {a: {pods: {%s: {weight: 5}}}}" % name for name in NO_PODS]
for rule in ["defaults: {maxTenants: %s}", "namespaces: {a: {maxTenants: %s}}"]:
    GOOD += [rule % value for value in ["1", "10", "1000"]]
    BAD += [rule % value for value in ["0", "1001", "-1", "1.5", "'5'", "null", "lots"]]
for rule in ["defaults: {rescueAfter: %s}", "namespaces: {a: {rescueAfter: %s}}"]:
    GOOD += [rule % value for value in ["10ms", "100ms", "999999ms", "3600000ms", "1s", "3600s", "60m", "1h", "never", "'5s'"]]
    BAD += [rule % value for value in ["100", "9ms", "0ms", "0s", "010ms", "3600001ms", "4000000ms", "3601s", "61m", "2h", "1.5s", "-1s", "'5 s'",
                                       "ms", "null", "[5s]", "Never", "forever"]]
for rule in ["defaults: {%s}", "namespaces: {a: {%s}}"]:
    GOOD += [rule % f"memory: {size}" for size in SIZES] + [rule % f"trustDomain: {domain}" for domain in DOMAINS]
    BAD += [rule % f"memory: {size}" for size in NO_SIZES] + [rule % f"trustDomain: {domain}" for domain in NO_DOMAINS]
GOOD += ["namespaces: {%s: {memory: 8GiB}}" % name for name in NAMESPACES]
BAD += ["namespaces: {%s: {memory: 8GiB}}" % name for name in NO_NAMESPACES]


def Load(path):
    return json.loads((ROOT / path).read_text())


class PolicySchema(unittest.TestCase):
    def setUp(self):
        self.schema = Load("docs/policy.schema.json")
        self.chart = Load("charts/gpuloom/values.schema.json")
        for schema in (self.schema, self.chart):
            jsonschema.Draft7Validator.check_schema(schema)

    def test_the_charts_copy_is_the_same(self):
        own = {key: value for key, value in self.schema.items()
               if key not in ("$schema", "title", "description", "definitions")}
        copy = {key: value for key, value in self.chart["properties"]["policy"].items() if key != "description"}
        self.assertEqual(copy, own)
        for name, definition in self.schema["definitions"].items():
            self.assertEqual(self.chart["definitions"][name], definition, name)

    def test_agent_and_schema_say_the_same(self):
        of_policy = jsonschema.Draft7Validator(self.schema)
        of_values = jsonschema.Draft7Validator({**self.chart, "required": []})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "policy.yaml")
            for is_good, text in [(True, text) for text in GOOD] + [(False, text) for text in BAD]:
                with self.subTest(policy=text):
                    path.write_text(text + "\n")
                    agent = subprocess.run([AGENT, "--check-policy", "--policy", path], capture_output=True, text=True)
                    self.assertEqual(agent.returncode == 0, is_good, f"agent: {agent.stdout}{agent.stderr}")
                    if not is_good:
                        self.assertRegex(agent.stdout + agent.stderr, r"policy\.yaml:\d+:\d+: ")
                    policy = yaml.safe_load(text)
                    self.assertEqual(of_policy.is_valid(policy), is_good, "docs/policy.schema.json")
                    self.assertEqual(of_values.is_valid({"policy": policy}), is_good, "charts/gpuloom/values.schema.json")

    def test_what_is_given_as_an_example_is_good(self):
        validator = jsonschema.Draft7Validator(self.schema)
        for path in ["deploy/examples/policy.yaml", "deploy/examples/policy-overcommit.yaml", "deploy/examples/policy-shares.yaml"]:
            validator.validate(yaml.safe_load((ROOT / path).read_text()))
        values = jsonschema.Draft7Validator(self.chart)
        default = yaml.safe_load((ROOT / "charts/gpuloom/values.yaml").read_text())
        values.validate(default)
        values.validate({**default, **yaml.safe_load((ROOT / "deploy/examples/values-softgpu.yaml").read_text())})


if __name__ == "__main__":
    unittest.main()
