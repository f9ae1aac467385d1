#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The check of names finds what does not exist, and nothing where all is well."""

import pathlib
import tempfile
import unittest

import names

CODE = {
    "shim/ring.h": "#pragma once\n#include <cuda.h>\n// Writes.\nclass RingWriter { int head_; };\n"
                   "inline constexpr int kMaxBytes = 1;\n",
    "agent/main.cc": 'void Parse() { Flag("--state-dir", getenv("GPULOOM_LOG")); }\n',
}


class NamesTest(unittest.TestCase):
    def Wrong(self, files):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            for name, text in {**CODE, **files}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return names.Check(root)

    def testWhatExists(self):
        self.assertEqual([], self.Wrong({
            "shim/a.cc": "// RingWriter (ring.h, shim/ring.h), RingWriters, kMaxBytes, head_, cuda.h, cuMemAlloc_v2;\n"
                         "// CUDA_ERROR_OUT_OF_MEMORY, CUdeviceptr, RingWriter::Parse(), <noun>_commands.h, r*.h, shim/*.h\n",
            "docs/a.md": "`RingWriter`, `Parse`, `gpuloom-agent --state-dir DIR`, `GPULOOM_LOG=info`, `shim/ring.h`, `…_OUT_OF_MEMORY`",
        }))

    def testStaleComments(self):
        for comment in ("RingReader takes it.", "see reader.h", "in read_*.cc", "(agent/*.h)", "shim/reader.h has more", "at most kMinBytes", "guards tail_",
                        "RingWriter::Clear empties it", "as Clear() does", "with GPULOOM_SPEED=1", "like cuMemAlot",
                        "CUDA_ERROR_TIRED", "`shut` it"):
            for file in ("shim/a.h", "shim/a.cc", "tests/a_test.cc"):
                wrong = self.Wrong({file: f"#pragma once\n// {comment}\n"})
                self.assertEqual(1, len(wrong), f"{comment}: {wrong}")
                self.assertTrue(wrong[0].startswith(f"{file}:2: "), wrong[0])

    def testStaleDocuments(self):
        for quoted in ("RingReader", "reader.h", "shim/read_*.h", "--speed", "gpuloom --speed 3", "GPULOOM_SPEED", "kMinBytes", "tail_bytes", "Clear()"):
            for file in ("README.md", "docs/a.md", "docs/design/a.md"):
                wrong = self.Wrong({file: f"# A page\n\nIt has `{quoted}`.\n"})
                self.assertEqual(1, len(wrong), f"{quoted}: {wrong}")
                self.assertTrue(wrong[0].startswith(f"{file}:3: "), wrong[0])

    def testOldPagesTellOfOldNames(self):
        self.assertEqual([], self.Wrong({"docs/benchmarks/0.1.md": "`RingReader`"}))

    def testCommentsProveNothing(self):
        for file, comment in [("shim/b.cc", "/* RingReader */"), ("shim/b.cc", "// RingReader"), ("deploy/a.py", "# RingReader"),
                              ("deploy/a.sh", "# RingReader")]:
            wrong = self.Wrong({"shim/a.h": "#pragma once\n// RingReader takes it.\n", file: comment + "\n"})
            self.assertTrue(any(w.startswith("shim/a.h:2: ") for w in wrong), (file, wrong))

    def testStringsAreCode(self):
        self.assertEqual([], self.Wrong({"shim/a.cc": 'Say("// RingReader");  // of RingReader\n'}))

    def testNamesOfOthers(self):
        others = "tests/documents/others_names.txt"
        self.assertEqual([], self.Wrong({"shim/a.cc": "// as StatefulSet\n", others: "# theirs\nStatefulSet  # Kubernetes\n"}))
        self.assertEqual(1, len(self.Wrong({others: "StatefulSet\n"})))


if __name__ == "__main__":
    unittest.main()
