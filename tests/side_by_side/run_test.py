#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the runner on programs that are shell scripts, with a gpuloom that only runs its command."""

import contextlib
import io
import json
import mmap
import os
import pathlib
import tempfile
import time
import unittest

import compare
import entries
import processes
import run

GPULOOM = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
SIDE=gpuloom exec "$@"
"""


def ran(output="", status=0, errors="", devices=(), libraries=()):
    return processes.Ran(status, output, errors, 1.0, list(devices), list(libraries))


def case_lines(*cases, process="none\tnone"):
    return "".join(f"{name}\t{status}\t{value}\t0.5\t{message}\n" for name, status, value, message in cases) + \
        (f"process\t{process}\n" if process else "")


class Runner(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.script("bin/gpuloom", GPULOOM)
        (self.root / "tests/programs").mkdir(parents=True)

    def script(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def program(self, name, text):
        self.script(f"tests/programs/{name}_static", "#!/bin/sh\n" + text + "\n")

    def main(self, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = run.main(["--build", str(self.root), "--softgpu", "--out", str(self.root / "out"), *arguments])
        return status, said.getvalue()

    def rows(self):
        return {(row["entry"], row["case"]): row for row in json.loads((self.root / "out/results.json").read_text())}

    def test_equal_programs(self):
        self.program("one", "echo PASS one")
        status, said = self.main()
        self.assertEqual(status, 0, said)
        self.assertIn("1 equal, 0 different", said)
        self.assertTrue((self.root / "out/programs_one_static/gpuloom.out").exists())

    def test_goes_on_behind_what_differs_crashes_and_hangs(self):
        self.program("a_differs", "echo $SIDE")
        self.program("b_crashes", '[ -z "$SIDE" ] || kill -SEGV $$; echo fine')
        self.program("c_hangs", 'echo begun; [ -z "$SIDE" ] || sleep 600')
        self.program("d_equal", "echo PASS d")
        start_s = time.monotonic()
        status, said = self.main("--patience", "0.1")
        self.assertLess(time.monotonic() - start_s, 300)
        self.assertEqual(status, 1)
        rows = self.rows()
        self.assertEqual([rows[f"programs/{name}_static", ""]["result"] for name in
                          ("a_differs", "b_crashes", "c_hangs", "d_equal")], ["no", "no", "no", "yes"], said)
        self.assertIn("signal 11", rows["programs/b_crashes_static", ""]["why"])
        self.assertIn("time limit", rows["programs/c_hangs_static", ""]["why"])

    def test_ends_what_a_program_left_behind(self):
        self.program("leaves", f"sleep 600 & echo $! > {self.root}/pid")
        self.main()
        pid = int((self.root / "pid").read_text())
        deadline_s = time.monotonic() + 60
        while pathlib.Path(f"/proc/{pid}").exists() and time.monotonic() < deadline_s:
            if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                break  # ended; who adopted it has not looked yet
            time.sleep(0.05)
        else:
            self.assertFalse(pathlib.Path(f"/proc/{pid}").exists(), "the child still runs")

    def test_unsupported_calls_are_shown(self):
        self.program("asks", 'echo same; [ -z "$SIDE" ] || echo "gpuloom: cuWish is not supported (said once)" >&2')
        self.assertEqual(self.main()[0], 0)
        self.assertEqual(self.rows()["programs/asks_static", ""]["unsupported"], ["cuWish"])
        self.assertIn("| cuWish |", (self.root / "out/report.md").read_text())

    def test_only_and_skip(self):
        for name in ("one", "two", "three"):
            self.program(name, f"echo {name}")
        self.assertEqual(self.main("--list", "--only", "*/t*", "--skip", "*three*")[1], "programs/two_static\n")

    def test_nothing_selected_is_no_success(self):
        self.assertEqual(self.main("--only", "nothing")[0], 1)

    def test_no_time_left_is_said(self):
        self.program("one", "echo one")
        status, said = self.main("--budget", "1")
        self.assertEqual(status, 1)
        self.assertIn("1 programs not run", said)

    def test_wrong_calls_are_one_row_and_those_that_differ(self):
        self.script("tests/gpuloom-wrong-calls", '#!/bin/sh\nprintf "a: b\\tX\\na: c\\t%s\\n" "${SIDE:-Y}"\n')
        self.assertEqual(self.main()[0], 1)
        self.assertEqual(self.rows()["wrong_calls", "a: c"]["why"], "native Y, gpuloom gpuloom")
        self.assertIn("1 answers equal", self.rows()["wrong_calls", ""]["why"])


class Compare(unittest.TestCase):
    def compare(self, native, gpuloom, again=None):
        rows = compare.compare(entries.Entry("x", ["x"], kind="cases"), native, gpuloom, again)
        return {row.case: row for row in rows}

    def test_cases(self):
        rows = self.compare(ran(case_lines(("a", "ok", "1", ""), ("b", "ok", "2", ""), ("c", "skipped", "", "no"))),
                            ran(case_lines(("a", "ok", "1", "slow"), ("b", "failed", "E", "m"), ("c", "skipped", "", "no")), 1))
        self.assertEqual([rows[name].result for name in ("", "a", "b", "c")], ["no", "yes", "no", "skipped"])

    def test_a_case_that_did_not_come(self):
        rows = self.compare(ran(case_lines(("a", "ok", "1", ""), ("b", "ok", "2", ""))),
                            ran(case_lines(("a", "ok", "1", ""), process=None), -11, "last words"))
        self.assertEqual(rows["b"].result, "no")
        self.assertIn("signal 11", rows["b"].why)
        self.assertIn("last words", rows[""].why)

    def test_what_fails_on_both_sides_is_equal_and_said(self):
        both = ran(case_lines(("a", "failed", "E", "m")), 1)
        self.assertIn("natively it fails, too", self.compare(both, both)["a"].why)
        self.assertEqual(self.compare(both, both)["a"].result, "yes")

    def test_a_crash_behind_the_last_case(self):
        lines = case_lines(("a", "ok", "1", ""))
        self.assertIn("after the last case", self.compare(ran(lines), ran(lines, -6))[""].why)

    def test_native_that_differs_from_itself(self):
        one, two, three = (ran(case_lines(("a", "ok", value, ""))) for value in "123")
        self.assertEqual(self.compare(one, two, three)["a"].result, compare.UNSTEADY)
        self.assertEqual(self.compare(one, two, one)["a"].result, "no")

    def test_no_case_natively_is_no_success(self):
        self.assertEqual(self.compare(ran("", 1, "no module"), ran("", 1, "no module"))[""].result, "no")

    def test_a_tenant_that_holds_the_device(self):
        lines = case_lines(("a", "ok", "1", ""))
        for held in (ran(lines, devices=["/dev/nvidia0"]), ran(lines, libraries=["libcuda.so.580.1"]),
                     ran(case_lines(("a", "ok", "1", ""), process="/dev/nvidiactl\tnone"))):
            self.assertEqual(self.compare(ran(lines, devices=["/dev/nvidia0"]), held)
                             ["the tenant holds no NVIDIA device and no NVIDIA library"].result, "no")

    def test_measured_numbers_are_no_difference(self):
        entry = entries.Entry("x", ["x"], without=r"ms=[0-9.]+")
        self.assertEqual(compare.compare(entry, ran("ms=1.5 a"), ran("ms=2.5 a"))[0].result, "yes")
        self.assertEqual(compare.compare(entry, ran("ms=1.5 a"), ran("ms=2.5 b"))[0].result, "no")


class Processes(unittest.TestCase):
    def test_a_mapped_driver_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "libcuda.so.580.159.04")
            path.write_bytes(b"\0" * 4096)
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ):
                self.assertEqual(processes.traces(os.getpid())[1], {"libcuda.so.580.159"})
        self.assertEqual(processes.traces(os.getpid())[1], set())

    def test_a_command_that_is_not_there(self):
        self.assertEqual(processes.run(["/nowhere/program"], dict(os.environ), 5, True).status, 127)


if __name__ == "__main__":
    unittest.main()
