#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""README's table of an operator's questions: each of its commands, typed on a node with tenants, answers its question.

usage: questions_test.py BUILD_FOLDER [unittest's arguments]   BUILD_FOLDER: where everything is built, by ninja
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/fake_kubelet"))

from local_node import LocalNode  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
FILE = "deploy/examples/policy.yaml"  # of the reader

# What a container types while a program of its own computes.
OWN_TRACE = ("coproc gpuloom-resting-tenant; read -r -u ${{COPROC[0]}}; echo 3600 >&${{COPROC[1]}}; "
             "gpuloom-trace --seconds 1 -o {trace}; status=$?; kill $COPROC_PID; exit $status")

# {question: [(the command as the table has it, what is typed, exit status, what the answer says…)]}, in the table's order: the
# last drains the GPU. {state}, {kubelet} and {policy} are the node's, {trace} is a new file, which is part of an answer. The
# doctor has its own mind about this machine.
QUESTIONS = {
    "Who uses this GPU, how much, now?":
        [("gpuloom top", "gpuloom top --once --state-dir {state}", 0, r"^team-a +train-7 +main +GPU-\S+ +[1-9]\d*\.\d% ")],
    "Since when, and how much since then?":
        [("gpuloom tenants", "gpuloom tenants --state-dir {state}", 0,
          r"^NAMESPACE .* GPU-TIME .* SINCE ", r"^team-a +train-7 .* \d+\.\ds .* \d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")],
    "What was refused, and why?":
        [("gpuloom refusals", "gpuloom refusals --state-dir {state}", 0, r" memory +team-b/greedy/main +beyond its quota of ")],
    "Which policy is in force?":
        [("gpuloom policy show", "gpuloom policy show --state-dir {state} {policy}", 0, r"^# .*: in force$", r"^defaults: .*weight: 50")],
    "What will this change of the policy do?":
        [("gpuloom policy diff FILE", f"gpuloom policy diff --state-dir {{state}} {FILE}", 1,
          r"^team-a +train-7 .* defaults\.weight +50 +100 +at once$"),
         ("gpuloom policy check", f"gpuloom policy check {FILE}", 0, rf"^{FILE}: good$"),
         ("explain", f"gpuloom policy explain {FILE} team-a train-7", 0, rf"^  memory +4GiB +{FILE}:\d+:\d+: defaults\.memory$"),
         ("simulate", f"gpuloom policy simulate {FILE} --seconds 1 --tenant namespace=team-a,name=train-7,requests=8ms", 0,
          r"^tenant .*\bp99 ms\b", r"^train-7 +team-a ")],
    "Is this node as it must be? If not, what to do?":
        [("gpuloom doctor", "gpuloom doctor --state-dir {state} --kubelet-dir {kubelet} --policy {policy}", None,
          r"^ok +policy .* in force since ", r"^ok +schedulers ", r"^errors: \d")],
    "What runs on the GPU, kernel by kernel?":
        [("gpuloom trace", "gpuloom trace --seconds 1 --state-dir {state} -o {trace}", 0, r" team-a/train-7/main +[1-9]", r'"name": ?"rest"'),
         ("gpuloom-trace", f"gpuloom run --softgpu --trace own -- bash -c '{OWN_TRACE}'", 0, r'"name": ?"rest"')],
    "Can this pod's work stop for a while?":
        [("gpuloom suspend", "gpuloom suspend --state-dir {state} team-a/train-7", 0, r"^team-a/train-7 is suspended: nothing of it is at a GPU$")],
    "How does this GPU get free?":
        [("gpuloom drain", "gpuloom drain --state-dir {state}", 0, r"^GPU-\S+ is drained by operator$", r"^team-a +train-7 ",
          r"delete their pods, or wait with --wait$")],
    "Which releases run here? Whom would new schedulers end?":
        [("gpuloom version", "gpuloom version --state-dir {state}", 0, r"^agent: \d", r"^scheduler of GPU-\S+: \d", r"^executors of GPU-\S+: \d"),
         ("gpuloom tenants", "gpuloom tenants --state-dir {state}", 0, r" KERNELS +PROCESSES ", r"^team-a +train-7 .* [1-9]\d* +1 +0 +0 ")],
}


class Node(LocalNode):
    """One whose GPU a pod uses all the time, and on which another was refused memory."""

    def __init__(self):
        super().__init__("questions", gpus=1, slots=10, settings={"GPULOOM_SOFTGPU_MEMORY": "1GiB", "GPULOOM_SOFTGPU_QUIET": "1"})
        self.policy.write_text("defaults: {weight: 50}\n")
        self.StartSchedulers(BUILD)
        self.StartAgent(BUILD)
        self.StartKubelet(BUILD)
        self.Until(self.ProbeIsReady, "the agent does not become ready")
        self.StartPod(Pod("team-b", "greedy", f"{BUILD}/tests/gpuloom-tenant refused 2048; sleep 3600"))
        self.Until(lambda: "greedy" in self.Answer("refusals"), "nothing is refused")
        self.StartPod(Pod("team-a", "train-7", f"echo 3600 | {BUILD}/tests/gpuloom-resting-tenant"))
        self.Until(lambda: re.search(r"train-7 .* [1-9]\d*\.\d%", self.Answer("top", "--once")), "nothing computes")

    def Answer(self, *words):
        return subprocess.run([BUILD / "bin/gpuloom", *words, "--state-dir", self.state], capture_output=True, text=True, check=False).stdout


def Pod(namespace, name, command):
    return {"namespace": namespace, "name": name, "slots": 1, "command": ["sh", "-c", command], "timeoutSeconds": 3600}


def Table():
    """{question: its commands} of README."""
    text = (ROOT / "README.md").read_text()
    rows = text[text.index("| question | command |"):].split("\n\n")[0].splitlines()[2:]
    cells = [row.strip("|").split("|") for row in rows]
    return {question.strip(): re.findall("`([^`]+)`", answer) for question, answer in cells}


class Questions(unittest.TestCase):
    def test_each_is_answered(self):
        table = Table()
        self.assertEqual({question: [shown for shown, *_ in rows] for question, rows in QUESTIONS.items()}, table)
        node = Node()
        self.addCleanup(node.End)
        with tempfile.TemporaryDirectory() as folder:
            self.trace = pathlib.Path(folder, "trace.json")
            for question, rows in QUESTIONS.items():
                for shown, typed, status, *said in rows:
                    with self.subTest(question, shown=shown):
                        self.CheckAnswer(typed.format(state=node.state, kubelet=node.kubelet_dir, policy=node.policy, trace=self.trace),
                                         (0, 1) if status is None else (status,), said)

    def CheckAnswer(self, command, statuses, said):
        programs = os.pathsep.join(f"{BUILD}/{folder}" for folder in ("bin", "lib", "tests"))
        ended = subprocess.run(["bash", "-c", command], cwd=ROOT, env=dict(os.environ, PATH=f"{programs}{os.pathsep}{os.environ['PATH']}"),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        answer = ended.stdout
        self.assertIn(ended.returncode, statuses, f"{command}\n{answer}")
        if self.trace.exists():
            answer += self.trace.read_text()
            self.trace.unlink()
        for words in said:
            self.assertRegex(answer, re.compile(words, re.MULTILINE), command)


if __name__ == "__main__":
    unittest.main()
