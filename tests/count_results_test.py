#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of what is counted, and of which tests run once more."""

import pathlib
import tempfile
import unittest

import count_results


class CountResultsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = pathlib.Path(folder.name)
        (self.build / "results").mkdir()

    def Write(self, name, *tests):
        """`tests`: (name, status, how ctest says that it ended, output)."""
        text = "".join(f'<testcase name="{test}" status="{status}"><system-out>{output}</system-out></testcase>'
                       for test, status, _, output in tests)
        (self.build / name).write_text(f"<testsuite>{text}</testsuite>")
        said = "".join(f"\t {number:2} - {test} ({ended})\n" for number, (test, status, ended, _) in enumerate(tests) if status == "fail")
        (self.build / "ctest.log").write_text(f"The following tests FAILED:\n{said}")

    def Results(self, test, *cases):
        text = "".join(f'<testcase classname="C" name="{name}" status="run">' + ("<failure/>" if failed else "") + "</testcase>"
                       for name, failed in cases)
        (self.build / "results" / f"{test}.xml").write_text(f"<testsuites><testsuite>{text}</testsuite></testsuites>")

    def Again(self):
        return [test.get("name") for test in count_results.Again(self.build)]

    def test_cases_of_programs_and_tests_without_cases(self):
        self.Write("junit.xml", ("a_test", "fail", "Failed", ""), ("b_test", "run", "", ""), ("c_test", "notrun", "", ""))
        self.Results("a_test", ("One", False), ("Two", True))
        self.assertEqual(count_results.Count(self.build), [("passed", "a_test: C.One"), ("failed", "a_test: C.Two"),
                                                           ("passed", "b_test"), ("skipped", "c_test")])

    def test_a_crash_is_a_failure_beside_what_passed(self):
        self.Write("junit.xml", ("a_test", "fail", "SEGFAULT", ""))
        self.Results("a_test", ("One", False))
        self.assertEqual(count_results.Count(self.build), [("failed", "a_test"), ("passed", "a_test: C.One")])

    def test_what_passes_when_it_runs_again_is_unsteady(self):
        self.Write("junit.xml", ("a_test", "fail", "Failed", "no answer in time"), ("b_test", "run", "", ""))
        self.assertEqual(self.Again(), ["a_test"])
        self.Write("junit_again.xml", ("a_test", "run", "", ""))
        self.Results("a_test", ("One", False))
        self.assertEqual(count_results.Count(self.build),
                         [("unsteady", "a_test"), ("passed", "a_test: C.One"), ("passed", "b_test")])

    def test_what_fails_again_is_a_failure(self):
        self.Write("junit.xml", ("a_test", "fail", "Timeout", ""))
        self.Write("junit_again.xml", ("a_test", "fail", "Failed", ""))
        self.assertEqual(count_results.Count(self.build), [("failed", "a_test")])

    def test_what_crashed_or_a_sanitizer_found_does_not_run_again(self):
        for message, output in (("SEGFAULT", ""), ("Subprocess aborted", ""), ("Subprocess killed", ""), ("Failed", "WARNING: ThreadSanitizer: data race"),
                                ("Failed", "12 ERROR: AddressSanitizer: heap-use-after-free"),
                                ("Failed", "ring.cc:1: runtime error: left shift"),
                                ("Failed", "gpuloom-executor: ring.cc:7: Assertion `held' failed.")):
            self.Write("junit.xml", ("a_test", "fail", message, output))
            self.assertEqual(self.Again(), [], message + output)

    def test_many_failures_are_not_the_machine(self):
        self.Write("junit.xml", *((f"{name}_test", "fail", "Failed", "") for name in "abc"))
        self.assertEqual(self.Again(), [])


if __name__ == "__main__":
    unittest.main()
