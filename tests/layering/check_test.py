#!/usr/bin/env python3
"""The layering check finds what it must find, and nothing in a clean tree."""

import pathlib
import tempfile
import unittest

import check


class CheckTest(unittest.TestCase):
    def Offences(self, files):
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            for name, text in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check.Check(root)

    def testCleanTree(self):
        self.assertEqual([], self.Offences({
            "proto/wire/ring.h": "#pragma once\n#include <cstdint>\n",
            "shim/launch.cc": '#include <cuda.h>\n#include "proto/wire/ring.h"\n',
            "agent/arbiter/tree.h": "#pragma once\n#include <vector>\n",
            "agent/executor/launch.cc": '#include <string>\n#include "agent/arbiter/tree.h"\n#include "proto/wire/ring.h"\n',
            "agent/executor/launch_test.cc": '#include <gtest/gtest.h>\n#include "proto/wire/ring.h"\n',
        }))

    def testHeadersOfTestsAreTests(self):
        stand_in = {"shim/stand_in.h": "#pragma once\n#include <string>\n",
                    "shim/stand_in.cc": '#include "shim/stand_in.h"\n#include <vector>\n'}
        test = {"shim/a_test.cc": '#include "shim/stand_in.h"\n'}
        self.assertEqual([], self.Offences({**stand_in, **test}))
        product = {"shim/a.cc": '#include "shim/stand_in.h"\n'}
        self.assertEqual(2, len(self.Offences({**stand_in, **test, **product})))

    def testForbiddenIncludes(self):
        wire = {"proto/wire/ring.h": "#pragma once\n"}
        for name, text in [
                ("shim/a.cc", '#include "agent/executor/b.h"\n'),
                ("agent/executor/a.cc", '#include "shim/b.h"\n'),
                ("agent/scheduler/a.cc", '#include "agent/executor/b.h"\n'),
                ("agent/plugin/a.cc", '#include "agent/softgpu/b.h"\n'),
                ("proto/wire/a.h", "#pragma once\n#include <unistd.h>\n"),
                ("proto/wire/b.h", '#pragma once\n#include "proto/channel/c.h"\n'),
                ("proto/control/a.h", "#pragma once\n#include <cuda.h>\n"),
                ("shim/b.cc", "#include <iostream>\n"),
                ("agent/scheduler/b.cc", "#include <grpcpp/grpcpp.h>\n"),
                ("agent/arbiter/a.cc", "#include <sys/socket.h>\n"),
                ("agent/arbiter/b.cc", "#include <time.h>\n"),
                ("agent/arbiter/c.cc", '#include "proto/wire/ring.h"\n'),
                ("agent/run/c.cc", "#include <absl/status/status.h>\n"),
        ]:
            included = {f: "#pragma once\n" for f in
                        ("agent/executor/b.h", "shim/b.h", "agent/softgpu/b.h", "proto/channel/c.h")}
            offences = self.Offences({**wire, **included, name: text})
            self.assertEqual(1, len(offences), f"{name}: {text}: {offences}")
            self.assertIn(name, offences[0])

    def testIncludeThatStartsBesideTheFile(self):
        self.assertEqual(1, len(self.Offences({"shim/a.h": "#pragma once\n", "shim/b.cc": '#include "a.h"\n'})))

    def testMissingFile(self):
        self.assertEqual(1, len(self.Offences({"shim/b.cc": '#include "shim/gone.h"\n'})))

    def testNames(self):
        self.assertEqual(1, len(self.Offences({"shim/string_util.cc": ""})))
        self.assertEqual(1, len(self.Offences({"agent/common/a.cc": ""})))
        self.assertEqual([], self.Offences({"agent/run/commons.cc": ""}))

    def testTodo(self):
        self.assertEqual(1, len(self.Offences({"shim/a.cc": "// TODO: later\n"})))
        self.assertEqual([], self.Offences({"shim/a.cc": "// TODO(#12): say what\n"}))

    def testPragmaAndLength(self):
        self.assertEqual(1, len(self.Offences({"shim/a.h": "int x;\n"})))
        self.assertEqual(1, len(self.Offences({"shim/a.cc": "\n" * 601})))


if __name__ == "__main__":
    unittest.main()
