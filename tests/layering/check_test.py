#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layering check finds what it must find, and nothing in a clean tree."""

import pathlib
import tempfile
import unittest
import unittest.mock

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
            "agent/node/size.h": "#pragma once\n#include <string>\n",
            "agent/softgpu/driver/settings.cc": '#include "agent/node/size.h"\n',
            "agent/arbiter/tree.h": "#pragma once\n#include <vector>\n",
            "shim/launch/launch.cc": '#include <cuda.h>\n#include "proto/wire/ring.h"\n',
            "agent/executor/launch/launch.cc": '#include <string>\n#include "agent/arbiter/tree.h"\n#include "agent/node/size.h"\n#include "proto/wire/ring.h"\n',
            "agent/executor/launch/launch_test.cc": '#include <gtest/gtest.h>\n#include "proto/wire/ring.h"\n',
        }))

    def testHeadersOfTestsAreTests(self):
        stand_in = {"shim/launch/stand_in.h": "#pragma once\n#include <string>\n",
                    "shim/launch/stand_in.cc": '#include "shim/launch/stand_in.h"\n#include <vector>\n'}
        test = {"shim/launch/a_test.cc": '#include "shim/launch/stand_in.h"\n'}
        self.assertEqual([], self.Offences({**stand_in, **test}))
        product = {"shim/launch/a.cc": '#include "shim/launch/stand_in.h"\n'}
        self.assertEqual(2, len(self.Offences({**stand_in, **test, **product})))

    def testForbiddenIncludes(self):
        wire = {"proto/wire/ring.h": "#pragma once\n"}
        for name, text in [
                ("shim/launch/a.cc", '#include "agent/executor/launch/b.h"\n'),
                ("agent/executor/launch/a.cc", '#include "shim/launch/b.h"\n'),
                ("agent/scheduler/a.cc", '#include "agent/executor/launch/b.h"\n'),
                ("agent/plugin/a.cc", '#include "agent/softgpu/api/b.h"\n'),
                ("proto/cuda/a.h", '#pragma once\n#include "proto/libcuda/d.h"\n'),
                ("agent/executor/launch/c.cc", '#include "proto/libcuda/d.h"\n'),
                ("proto/wire/a.h", "#pragma once\n#include <unistd.h>\n"),
                ("proto/wire/b.h", '#pragma once\n#include "proto/channel/c.h"\n'),
                ("proto/control/a.h", "#pragma once\n#include <cuda.h>\n"),
                ("shim/launch/b.cc", "#include <iostream>\n"),
                ("agent/scheduler/b.cc", "#include <grpcpp/grpcpp.h>\n"),
                ("agent/arbiter/a.cc", "#include <sys/socket.h>\n"),
                ("agent/arbiter/b.cc", "#include <time.h>\n"),
                ("agent/arbiter/c.cc", '#include "proto/wire/ring.h"\n'),
                ("agent/run/c.cc", "#include <absl/status/status.h>\n"),
                ("agent/node/a.cc", "#include <absl/status/status.h>\n"),
                ("agent/node/b.cc", "#include <cuda.h>\n"),
                ("agent/softgpu/api/a.cc", '#include "agent/node/log.h"\n'),
        ]:
            included = {f: "#pragma once\n" for f in
                        ("agent/executor/launch/b.h", "shim/launch/b.h", "agent/softgpu/api/b.h", "agent/node/log.h", "proto/channel/c.h",
                         "proto/libcuda/d.h")}
            offences = self.Offences({**wire, **included, name: text})
            self.assertEqual(1, len(offences), f"{name}: {text}: {offences}")
            self.assertIn(name, offences[0])

    def testDoublesAreForTests(self):
        double = {"agent/executor/testing/driver.h": "#pragma once\n"}
        include = '#include "agent/executor/testing/driver.h"\n'
        self.assertEqual([], self.Offences({**double, "agent/executor/graph/graph_test.cc": include}))
        self.assertEqual(1, len(self.Offences({**double, "agent/executor/graph/graph.cc": include})))

    def testSourcesStandInTheirRooms(self):
        self.assertEqual([], self.Offences({"shim/entry.cc": "", "shim/graph/exec.cc": "", "agent/softgpu/exec/cases/bits.cc": ""}))
        for name in ("shim/exec.cc", "shim/graphs/exec.cc", "agent/executor/exec.cc", "agent/executor/context/limit.cc",
                     "agent/softgpu/graph.cc", "agent/softgpu/exec/bits.cc"):
            self.assertEqual(1, len(self.Offences({name: ""})), name)

    def testHeadersThatManyInclude(self):
        def Tree(many, sources=12):
            """`many` of the sources include one header by way of another, two of them that one beside it."""
            tree = {"agent/executor/launch/far.h": "#pragma once\n",
                    "agent/executor/launch/near.h": '#pragma once\n#include "agent/executor/launch/far.h"\n'}
            for i in range(sources):
                names = ["near"] * (i < many - 2) + ["far"] * (many - 2 <= i < many)
                tree[f"agent/executor/launch/source{i}.cc"] = "".join(f'#include "agent/executor/launch/{name}.h"\n' for name in names)
            return tree
        self.assertEqual([], self.Offences(Tree(4)))
        self.assertEqual([], self.Offences(Tree(5, sources=11)))
        (offence,) = self.Offences(Tree(5))
        self.assertIn("agent/executor/launch/far.h: 5 of 12 sources include it, more than a third", offence)
        with unittest.mock.patch.dict(check.WIDE, {"agent/executor": {"agent/executor/launch/far.h": "a reason"}}):
            self.assertEqual([], self.Offences(Tree(5)))
            (offence,) = self.Offences(Tree(4))
            self.assertIn("agent/executor/launch/far.h: only 4 of 12 sources include it", offence)

    def testAFolderWithoutARuleIsRefused(self):
        for name in ("proto/new/x.h", "agent/new/x.cc", "agent/new/testing/x.cc"):
            (offence,) = self.Offences({name: "#pragma once\n"})
            self.assertIn("nothing says what " + "/".join(name.split("/")[:2]) + "/ may include", offence)

    def testIncludeThatStartsBesideTheFile(self):
        self.assertEqual(1, len(self.Offences({"shim/launch/a.h": "#pragma once\n", "shim/launch/b.cc": '#include "a.h"\n'})))

    def testMissingFile(self):
        self.assertEqual(1, len(self.Offences({"shim/launch/b.cc": '#include "shim/launch/gone.h"\n'})))

    def testNames(self):
        self.assertEqual(1, len(self.Offences({"shim/launch/string_util.cc": ""})))
        self.assertEqual(1, len(self.Offences({"agent/node/common/a.cc": ""})))
        self.assertEqual([], self.Offences({"agent/run/commons.cc": ""}))

    def testLocksThatClangDoesNotSee(self):
        for text in ("std::mutex mutex;\n", "#include <mutex>\n", "const std::lock_guard lock(mutex);\n",
                     "std::condition_variable changed;\n", "pthread_mutex_t lock;\n"):
            for name in ("agent/run/a.cc", "proto/cuda/a.cc", "agent/plugin/a.cc"):
                self.assertEqual(1, len(self.Offences({name: text})), (name, text))
            self.assertEqual([], self.Offences({"proto/sync/a.cc": text, "agent/run/a_test.cc": text, "tests/a.cc": text}))

    def testLocksThatNothingNames(self):
        for text in ("Lock lock;\n", "  Mutex mutex_;\nint count_;\n", "constinit Lock list_lock;\n", "  mutable SharedMutex lock_;\n", "Mutex a GPULOOM_GUARDED_BY(b);\nMutex b;\nMutex c;\n"):
            for name in ("shim/session/a.h", "agent/plugin/a.h"):
                self.assertEqual(1, len(self.Offences({name: "#pragma once\n" + text})), (name, text))
            self.assertEqual([], self.Offences({"shim/session/a_test.cc": text}))
        for text in ("  Lock lock;\n  int count GPULOOM_GUARDED_BY(lock);\n", "Mutex mutex_;\nvoid Take() GPULOOM_EXCLUDES(mutex_);\n",
                     "  Lock first GPULOOM_ACQUIRED_BEFORE(lock);\n  Lock lock;\n  int a GPULOOM_GUARDED_BY(lock);\n",
                     "  Lock lock;\nevents.table.Take(events.lock);\n", "void Lock();\n  Lock* lock_;\n"):
            self.assertEqual([], self.Offences({"shim/session/a.h": "#pragma once\n" + text}), text)
        header = {"shim/module/kernel.h": "#pragma once\nextern Lock kernels_lock;\nint next GPULOOM_GUARDED_BY(kernels_lock);\n"}
        self.assertEqual([], self.Offences({**header, "shim/module/kernel.cc": '#include "shim/module/kernel.h"\nconstinit Lock kernels_lock;\n'}))

    def testWhatIsSilencedIsEnabled(self):
        tidy = {".clang-tidy": "# performance-everything\nChecks: >\n  -*,\n  bugprone-branch-clone,performance-*,-performance-no-int-to-ptr\n"}
        for text in ("f();  // NOLINT(concurrency-mt-unsafe): nobody sets it\n", "using namespace a;  // NOLINT: of this file\n",
                     "// NOLINTNEXTLINE(bugprone-branch-clone,google-runtime-int)\n"):
            self.assertEqual(1, len(self.Offences({**tidy, "shim/launch/a.cc": text})), text)
        for text in ("f();  // NOLINT(bugprone-branch-clone): two reasons\n", "// NOLINTNEXTLINE(performance-enum-size)\n"):
            self.assertEqual([], self.Offences({**tidy, "shim/launch/a.cc": text}), text)

    def testLocksAreEverybodys(self):
        lock = {"proto/sync/mutex.h": "#pragma once\n"}
        include = '#include "proto/sync/mutex.h"\n'
        for name in ("shim/launch/a.cc", "proto/cuda/a.cc", "agent/softgpu/api/a.cc", "agent/executor/launch/a.cc", "agent/policy/a.cc"):
            self.assertEqual([], self.Offences({**lock, name: include}), name)
        self.assertEqual(1, len(self.Offences({**lock, "proto/wire/a.h": "#pragma once\n" + include})))

    def testTodo(self):
        self.assertEqual(1, len(self.Offences({"shim/launch/a.cc": "// TODO: later\n"})))
        self.assertEqual([], self.Offences({"shim/launch/a.cc": "// TODO(#12): say what\n"}))

    def testPragmaAndLength(self):
        self.assertEqual(1, len(self.Offences({"shim/launch/a.h": "int x;\n"})))
        self.assertEqual(1, len(self.Offences({"shim/launch/a.cc": "\n" * 601})))


if __name__ == "__main__":
    unittest.main()
