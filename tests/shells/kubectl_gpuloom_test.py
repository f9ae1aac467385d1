#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/kubectl-gpuloom, with a stand-in for kubectl (stand_ins/).

usage: kubectl_gpuloom_test.py BUILD_FOLDER [unittest's arguments]
"""

import json
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
HERE = pathlib.Path(__file__).resolve().parent
PLUGIN = HERE.parents[1] / "deploy/kubectl-gpuloom"

ONE = "NAMESPACE   POD   STATE\nteam-a      p     waits for memory\n"
OTHER = "NAMESPACE      POD             STATE\nteam-vision    train-7-12345   runs\n"


def Agent(node, pod="", namespace="gpuloom-system"):
    return {"node": node, "namespace": namespace, "pod": pod or f"gpuloom-agent-{node}"}


class KubectlGpuloom(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="gpuloom-kubectl-")
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        # Where no scheduler of somebody else's is looked at.
        self.runtime = tempfile.TemporaryDirectory(prefix="gpuloom-runtime-")
        self.addCleanup(self.runtime.cleanup)
        self.kept = set()
        self.cluster = {"agents": [Agent("b"), Agent("a")], "pods": {"team-a/p": "b"}, "answers": {}, "log": str(self.path / "log")}

    def Environment(self):
        (self.path / "cluster.json").write_text(json.dumps(self.cluster))
        return dict(os.environ, PATH=f"{HERE / 'stand_ins'}{os.pathsep}{os.environ['PATH']}", TMPDIR=self.folder.name,
                    XDG_RUNTIME_DIR=self.runtime.name,
                    GPULOOM_STAND_IN_CLUSTER=str(self.path / "cluster.json"), GPULOOM_STAND_IN_PROGRAM=str(BUILD / "bin/gpuloom"))

    def Run(self, *words, status=0, given=""):
        ended = subprocess.run([PLUGIN, *words], env=self.Environment(), input=given, capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, status, ended.stdout + ended.stderr)
        self.assertEqual({path.name for path in self.path.iterdir()} - {"cluster.json", "log"}, self.kept, "nothing is left")
        return ended.stdout, ended.stderr

    def Log(self):
        log = self.path / "log"
        return log.read_text().splitlines() if log.exists() else []

    def test_the_script_is_clean(self):
        checked = subprocess.run(["shellcheck", PLUGIN], capture_output=True, text=True, check=False)
        self.assertEqual(checked.stdout, "")

    def test_one_table_of_all_nodes(self):
        self.cluster["answers"] = {"a": {"out": ONE}, "b": {"out": OTHER}}
        self.assertEqual(self.Run("tenants"), (
            "NODE   NAMESPACE     POD             STATE\n"
            "a      team-a        p               waits for memory\n"
            "b      team-vision   train-7-12345   runs\n", ""))

    def test_a_node_that_has_trouble_costs_nobody_elses_answer(self):
        self.cluster["answers"] = {"a": {"out": "NAMESPACE   POD   STATE\n", "err": "gpuloom: no scheduler\n", "status": 1},
                                   "b": {"out": OTHER}}
        out, err = self.Run("tenants", status=1)
        self.assertIn("b      team-vision   train-7-12345   runs\n", out)
        self.assertEqual(err, "a: gpuloom: no scheduler\n")

    def Clock(self):
        """A `sleep` that ends when every other one has been ended: when the other node has answered. Returns what it was told."""
        self.kept |= {"programs", "limits", "sleepers"}
        programs = self.path / "programs"
        programs.mkdir()
        sleep = programs / "sleep"
        sleep.write_text('#!/bin/bash\nfolder=$(dirname "$(dirname "$0")")\necho "$1" >>"$folder/limits"\necho $$ >>"$folder/sleepers"\n'
                         'alive() { mapfile -t all <"$folder/sleepers"; ((${#all[@]} == 1)) && return; for pid in "${all[@]}"; do\n'
                         '  [[ $pid != $$ ]] && kill -0 "$pid" 2>/dev/null && return; done; return 1; }\n'
                         'while alive; do /bin/sleep 0.02; done\n')
        sleep.chmod(0o755)
        inherited = self.Environment
        self.Environment = lambda: (lambda found: found | {"PATH": f"{programs}{os.pathsep}{found['PATH']}"})(inherited())

        def Told():
            told = (self.path / "limits").read_text().split()
            for name in ("limits", "sleepers"):
                (self.path / name).unlink()
            return told
        return Told

    def test_a_node_that_hangs_costs_nobody_elses_answer(self):
        told = self.Clock()
        self.cluster["answers"] = {"a": {"out": ONE, "until": "/none"}, "b": {"out": OTHER}}
        out, err = self.Run("tenants", status=1)
        self.assertEqual(out, "NODE   NAMESPACE     POD             STATE\nb      team-vision   train-7-12345   runs\n")
        self.assertEqual(err, "a: gpuloom: no answer within 60 s (--node-timeout): kubectl describe node a\n")
        self.assertEqual(told(), ["60", "60"])
        self.cluster["answers"]["b"]["out"] = "[]\n"
        nodes = json.loads(self.Run("--node-timeout", "7", "tenants", "-o", "json", status=1)[0])["nodes"]
        self.assertEqual([one["answer"] for one in nodes], [None, []])
        self.assertEqual(told(), ["7", "7"])
        for seconds, limit in (("2", "62"), ("0.5", "61")):
            self.kept.add("traces")
            self.assertIn("a: gpuloom: no answer", self.Run("trace", "--seconds", seconds, "-o", str(self.path / "traces"), status=1)[1])
            self.assertEqual([path.name for path in (self.path / "traces").iterdir()], ["b.json"])
            shutil.rmtree(self.path / "traces")
            self.kept.remove("traces")
            self.assertEqual(told(), [limit, limit])
        self.Run("--node", "a", "--node", "b", "drain", status=1)
        self.assertEqual(told(), ["60", "60"])

    def test_what_waits_for_others_has_no_limit(self):
        self.Clock()
        self.kept = {"programs"}  # no clock has run
        self.cluster["answers"] = {"a": {"out": "nobody is there\n"}, "b": {"out": "nobody is there\n"}}
        self.Run("--node", "a", "--node", "b", "drain", "--wait", "--timeout", "120m")
        self.Run("--node", "a", "top", "-n", "3")

    def test_documents_are_put_together(self):
        document = json.loads(self.Run("version", "-o", "json")[0])
        self.assertEqual([one["node"] for one in document["nodes"]], ["a", "b"])
        self.assertEqual(document["nodes"][0]["answer"]["schedulers"], [])
        self.assertEqual(yaml.safe_load(self.Run("version", "--output=yaml")[0]), document)
        out, _ = self.Run("doctor", "--kubelet-dir", "/none", "-oyaml", status=self.DoctorsStatus())
        self.assertGreater(len(yaml.safe_load(out)["nodes"][1]["answer"]["findings"]), 5)
        self.cluster["answers"] = {"a": {"err": "gone\n", "status": 1}}
        for form, load in (("json", json.loads), ("yaml", yaml.safe_load)):
            nodes = load(self.Run("version", "-o", form, status=1)[0])["nodes"]
            self.assertIsNone(nodes[0]["answer"])
            self.assertIn("version", nodes[1]["answer"])

    def DoctorsStatus(self):
        return subprocess.run([BUILD / "bin/gpuloom", "doctor", "--kubelet-dir", "/none"], capture_output=True, check=False).returncode

    def test_other_answers_stand_below_their_nodes(self):
        self.cluster["answers"] = {"a": {"out": "ok   kernel\n"}, "b": {"out": "error   kernel\n", "status": 1}}
        self.assertEqual(self.Run("doctor", status=1)[0], "== a\nok   kernel\n\n== b\nerror   kernel\n")

    def test_nodes_and_namespaces_can_be_named(self):
        self.cluster["agents"].append(Agent("c", namespace="elsewhere"))
        self.cluster["answers"] = {node: {"out": f"{node}\n"} for node in "abc"}
        self.assertEqual(self.Run("--node", "c", "--node", "a", "--context", "prod", "doctor")[0], "== c\nc\n\n== a\na\n")
        self.assertTrue(all(line.startswith("--context prod ") for line in self.Log()), self.Log())
        self.assertEqual(self.Run("--agent-namespace", "elsewhere", "doctor")[0], "== c\nc\n")
        self.Run("--name", "ours", "doctor", status=1)  # the stand-in knows gpuloom alone
        self.assertIn("app.kubernetes.io/name=ours,app.kubernetes.io/component in (agent,schedulers)", self.Log()[-1])
        self.assertIn("no agent of gpuloom runs on node d", self.Run("--node", "d", "doctor", status=1)[1])
        self.assertIn("no agent of gpuloom runs in namespace nowhere", self.Run("--agent-namespace", "nowhere", "doctor", status=1)[1])

    def test_a_node_whose_agent_does_not_run_is_named(self):
        self.cluster["agents"] += [{**Agent("a0"), "phase": "Pending"}, {**Agent("b", "gpuloom-agent-former"), "phase": "Failed"},
                                   {**Agent("c", "gpuloom-schedulers-c"), "component": "schedulers"},
                                   {**Agent("b", "gpuloom-schedulers-b"), "component": "schedulers"}]
        self.cluster["answers"] = {"a": {"out": ONE}, "b": {"out": OTHER}}
        silent = ("a0: gpuloom: no agent runs: its pod gpuloom-agent-a0 is Pending: kubectl -n gpuloom-system describe pod gpuloom-agent-a0\n"
                  "c: gpuloom: no agent runs: there is none, only schedulers: kubectl -n gpuloom-system get daemonsets\n")
        out, err = self.Run("tenants", status=1)
        self.assertEqual(err, silent)
        self.assertEqual([line.split()[0] for line in out.splitlines()], ["NODE", "a", "b"])
        self.cluster["answers"] = {node: {"out": "{}\n"} for node in "ab"}
        nodes = json.loads(self.Run("gpus", "-o", "json", status=1)[0])["nodes"]
        self.assertEqual([(one["node"], one["answer"]) for one in nodes], [("a", {}), ("a0", None), ("b", {}), ("c", None)])
        self.assertIn("no agent of gpuloom runs on node a0: its pod gpuloom-agent-a0 is Pending",
                      self.Run("--node", "a0", "drain", status=1)[1])

    def test_one_that_comes_first_has_no_header_to_give(self):
        self.cluster["agents"].append({**Agent("0"), "phase": "Pending"})
        self.cluster["answers"] = {"a": {"out": ONE}, "b": {"out": OTHER}}
        self.assertTrue(self.Run("tenants", status=1)[0].startswith("NODE   NAMESPACE "))

    def test_an_agent_that_waits_for_a_node_is_missed(self):
        self.cluster["agents"].append({**Agent("", "gpuloom-agent-x"), "phase": "Pending"})
        self.cluster["answers"] = {"a": {"out": ONE}, "b": {"out": OTHER}}
        self.assertIn("pod gpuloom-agent-x is on no node yet", self.Run("tenants", status=1)[1])

    def test_while_an_agent_is_replaced_one_of_the_two_is_asked(self):
        self.cluster["agents"] = [Agent("a", "gpuloom-agent-old"), Agent("a", "gpuloom-agent-new")]
        self.cluster["answers"] = {"a": {"out": ONE}}
        self.assertEqual(self.Run("gpus")[0].count("team-a"), 1)

    def test_many_nodes_are_all_asked(self):
        names = [f"node-{i:02}" for i in range(40)]
        self.cluster["agents"] = [Agent(name) for name in reversed(names)]
        self.cluster["answers"] = {name: {"out": ONE} for name in names}
        lines = self.Run("tenants")[0].splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["NODE", *names])

    def test_a_pod_is_suspended_on_its_node(self):
        self.cluster["answers"] = {"b": {"out": "team-a/p is suspended\n", "err": "still runs\n", "status": 3}}
        out, err = self.Run("suspend", "--timeout", "0s", "team-a/p/main", status=3)
        self.assertEqual(out, "team-a/p is suspended\n")
        self.assertEqual(err, "b: still runs\n")
        self.assertEqual([line for line in self.Log() if " exec " in line],
                         ["--namespace gpuloom-system exec --container agent gpuloom-agent-b -- gpuloom suspend --timeout 0s team-a/p/main"])
        self.assertIn("not found", self.Run("resume", "team-a/q", status=1)[1])

    def test_nodes_that_are_named_are_drained(self):
        self.cluster["answers"] = {"b": {"out": "GPU-1 is drained by operator\n", "err": "1 tenant is still there\n"}}
        out, err = self.Run("--node", "b", "drain", "--reason", "new fans")
        self.assertEqual(out, "== b\nGPU-1 is drained by operator\n")
        self.assertEqual(err, "b: 1 tenant is still there\n")
        self.assertTrue(self.Log()[-1].endswith("gpuloom-agent-b -- gpuloom drain --reason new fans"), self.Log())

    def test_for_whom_a_drain_waits_is_said_while_it_does(self):
        done = self.path / "done"
        self.cluster["answers"] = {"b": {"out": "nobody is there\n", "err": "gpuloom: waits for team-a/p\n", "until": str(done), "status": 3}}
        drain = subprocess.Popen([PLUGIN, "--node", "b", "drain", "--wait"], env=self.Environment(), stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.assertEqual(drain.stderr.readline(), "b: gpuloom: waits for team-a/p\n")
        done.touch()
        self.assertEqual(drain.communicate(), ("== b\nnobody is there\n", ""))
        self.assertEqual(drain.returncode, 3)

    def test_every_node_is_given_the_policy_that_it_is_to_compare(self):
        self.cluster["answers"] = {"a": {"out": "nothing changes\n"}, "b": {"out": "THEN {input}\n", "status": 1}}
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as policy:
            policy.write("defaults: {weight: 3}")
            policy.flush()
            expected = "== a\nnothing changes\n\n== b\nTHEN defaults: {weight: 3}\n"
            self.assertEqual(self.Run("policy", "diff", policy.name, status=1)[0], expected)
            self.assertIn("--namespace gpuloom-system exec --stdin --container agent gpuloom-agent-b -- gpuloom policy diff -", self.Log())
        self.assertEqual(self.Run("policy", "diff", "-", status=1, given="defaults: {weight: 3}")[0], expected)
        document = json.loads(self.Run("--node", "a", "policy", "diff", "-o", "json", "-", given="")[0].replace("nothing changes", "7"))
        self.assertEqual(document, {"nodes": [{"node": "a", "answer": 7}]})
        self.assertIn("No such file", self.Run("policy", "diff", "/none.yaml", status=2)[1])
        # The program of the build, which knows of no policy in force.
        self.cluster["answers"] = {"b": {"out": "nothing changes\n"}}
        out, err = self.Run("policy", "diff", "--state-dir", "/none", "-", status=2, given="defaults: {}")
        self.assertIn("== b\nnothing changes\n", out)
        self.assertIn("a: gpuloom: policy /none/last-good-policy.yaml: No such file", err)

    def Traces(self):
        """The traces that are there, by their paths; they are taken away."""
        found = {}
        for path in sorted((self.path / "traces").rglob("*.json")):
            self.assertEqual(path.stat().st_mode & 0o777, 0o600, path)
            found[str(path.relative_to(self.path / "traces"))] = path.read_text()
        shutil.rmtree(self.path / "traces")
        (self.path / "traces").mkdir()
        return found

    def test_a_trace_of_each_node_is_a_file_of_its_own(self):
        self.kept = {"traces"}
        traces = self.path / "traces"
        traces.mkdir()
        self.cluster["answers"] = {"a": {"out": '{"a": 1}\n', "err": "GPU   DOMAIN\n"},
                                   "b": {"out": '{"b": 1}\n', "err": "gpuloom: something is missing\n", "status": 3}}
        out, err = self.Run("trace", "--seconds", "2", "-o", f"{traces}/all", status=3)
        self.assertEqual((out, err), ("", "a: GPU   DOMAIN\nb: gpuloom: something is missing\n"))
        self.assertEqual({line.partition(" -- ")[2] for line in self.Log() if " exec " in line},
                         {"gpuloom trace --seconds 2 --output=-"})
        self.assertEqual(self.Traces(), {"all/a.json": '{"a": 1}\n', "all/b.json": '{"b": 1}\n'})
        self.Run("--node", "a", "trace", f"--output={traces}/one.json", "--seconds", "2")
        self.assertEqual(self.Traces(), {"one.json": '{"a": 1}\n'})
        self.Run("--node", "a", "trace", f"-o{traces}", "--seconds", "2")
        self.assertEqual(self.Traces(), {"a.json": '{"a": 1}\n'})
        self.assertEqual(self.Run("--node", "a", "trace", "--seconds", "2", "-o", "-")[0], '{"a": 1}\n')
        self.cluster["agents"] = [Agent("a")]
        self.Run("trace", "--seconds", "2", "-o", f"{traces}/all")
        self.assertEqual(list(self.Traces()), ["all/a.json"], "one node of a cluster, and none was named")

    def test_what_is_no_trace_is_not_written(self):
        self.kept = {"traces"}
        (self.path / "traces").mkdir()
        self.cluster["answers"] = {"a": {"out": "half of", "err": "lost connection\n", "status": 1}, "b": {"out": "whole\n"}}
        self.Run("trace", "--seconds", "2", "-o", str(self.path / "traces"), status=1)
        self.assertEqual(self.Traces(), {"b.json": "whole\n"})
        for words in (["trace", "--seconds", "2"], ["trace", "--seconds", "2", "-o", "-"], ["trace", "-o"]):
            self.assertIn("trace: ", self.Run(*words, status=2)[1])
        asked = len(self.Log())
        self.assertIn("cannot be written", self.Run("--node", "a", "trace", "--seconds", "2", "-o", "/none/trace.json", status=1)[1])
        self.assertNotIn(" exec ", "\n".join(self.Log()[asked:]))
        self.Run("--node", "a", "trace", "--seconds", "2", "-o", "/dev/null", status=1)
        self.assertIn("b: gpuloom: /dev/full cannot be written",
                      self.Run("--node", "b", "trace", "--seconds", "2", "-o", "/dev/full", status=1)[1])
        self.assertTrue(pathlib.Path("/dev/null").is_char_device())

    def test_a_trace_that_cannot_be_written_costs_neither_the_former_one_nor_those_of_other_nodes(self):
        self.kept = {"traces", "programs"}
        traces, programs = self.path / "traces/all", self.path / "programs"
        traces.mkdir(parents=True)
        programs.mkdir()
        self.cluster["agents"] = [Agent("a"), Agent("b"), Agent("c")]
        self.cluster["answers"] = {node: {"out": f"{node} now\n"} for node in "abc"}
        for node in "ab":
            (traces / f"{node}.json").write_text(f"{node} before\n")
            (traces / f"{node}.json").chmod(0o600)
        # A disk that is full when it is the turn of the second node's file.
        cat = programs / "cat"
        cat.write_text('#!/bin/sh\ncase $(readlink "/proc/$$/fd/1") in */b.json*) echo "cat: No space left on device" >&2; exit 1 ;; esac\n'
                       'exec /bin/cat "$@"\n')
        cat.chmod(0o755)
        inherited = self.Environment()
        self.Environment = lambda: inherited | {"PATH": f"{programs}{os.pathsep}{inherited['PATH']}"}
        _, err = self.Run("trace", "--seconds", "2", "-o", str(traces), status=1)
        self.assertEqual(err, f"cat: No space left on device\nb: gpuloom: {traces}/b.json cannot be written\n")
        self.assertEqual({path.name for path in traces.iterdir()}, {"a.json", "b.json", "c.json"})
        self.assertEqual(self.Traces(), {"all/a.json": "a now\n", "all/b.json": "b before\n", "all/c.json": "c now\n"})

    def test_every_file_of_a_trace_is_tried_before_anybody_records(self):
        self.kept = {"traces"}
        traces = self.path / "traces"
        (traces / "b.json").mkdir(parents=True)
        (traces / "a.json").write_text("before\n")
        (traces / "a.json").chmod(0o600)
        _, err = self.Run("trace", "--seconds", "2", "-o", str(traces), status=1)
        self.assertIn(f"kubectl gpuloom: {traces}/b.json cannot be written", err)
        self.assertNotIn("/a.json", err)
        self.assertNotIn(" exec ", "\n".join(self.Log()))
        (traces / "b.json").rmdir()
        self.assertEqual([path.name for path in traces.iterdir()], ["a.json"])
        self.assertEqual(self.Traces(), {"a.json": "before\n"})

    def test_a_link_leads_to_a_trace(self):
        self.kept = {"traces"}
        traces = self.path / "traces"
        (traces / "elsewhere").mkdir(parents=True)
        (traces / "elsewhere/real.json").write_text("before\n")
        (traces / "link").symlink_to("elsewhere/real.json")
        self.cluster["answers"] = {"a": {"out": "now\n"}}
        self.Run("--node", "a", "trace", "--seconds", "2", "-o", str(traces / "link"))
        self.assertTrue((traces / "link").is_symlink())
        self.assertEqual(self.Traces(), {"elsewhere/real.json": "now\n"})

    def test_a_node_that_is_named_twice_is_asked_once(self):
        self.kept = {"traces"}
        (self.path / "traces").mkdir()
        self.cluster["answers"] = {"a": {"out": "whole\n"}}
        self.Run("--node", "a", "--node", "a", "trace", "--seconds", "2", "-o", str(self.path / "traces/one.json"))
        self.assertEqual(self.Traces(), {"one.json": "whole\n"})
        self.assertEqual(self.Run("--node", "a", "--node", "a", "doctor")[0], "== a\nwhole\n")

    def test_top_is_one_look_at_several_nodes_and_live_at_one(self):
        self.cluster["answers"] = {"a": {"out": "table\n"}, "b": {"out": "table\n"}}
        self.assertEqual(self.Run("top", "--sort", "memory")[0], "== a\ntable\n\n== b\ntable\n")
        self.assertTrue(self.Log()[-1].endswith("gpuloom top --sort memory --once"), self.Log())
        self.assertIn("--once", self.Run("top", "-n", "3", status=2)[1])
        self.assertEqual(self.Run("--node", "a", "top", "-n", "3")[0], "table\n")
        master, slave = pty.openpty()
        live = subprocess.run([PLUGIN, "--node", "a", "top"], env=self.Environment(), stdin=slave, stdout=slave, stderr=slave, check=False)
        self.assertEqual(live.returncode, 0)
        self.assertIn(b"table", os.read(master, 1000))
        os.close(master)
        os.close(slave)
        self.assertIn(" exec --stdin --tty ", self.Log()[-1])

    def test_mistakes_are_said(self):
        for words in ([], ["run", "--", "ls"], ["policy", "check", "f"], ["policy"], ["policy", "diff"], ["policy", "diff", "-o", "json"], ["--node"], ["suspend"], ["suspend", "p"], ["drain"],
                      ["--node-timeout", "0", "gpus"], ["--node-timeout", "1m", "gpus"]):
            self.Run(*words, status=2)
        self.assertEqual(self.Log(), [], "nothing was asked of the cluster")
        self.cluster["agents"] = []
        self.assertIn("no agent of gpuloom runs", self.Run("tenants", status=1)[1])
        self.assertIn("kubectl gpuloom", self.Run("--help")[0])


if __name__ == "__main__":
    unittest.main()
