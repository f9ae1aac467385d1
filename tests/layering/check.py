#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Refuses a file that stands in the wrong room: the include table, names, TODO spelling, file length, wide headers.

usage: check.py [--root DIR] [--lengths]

The rule for a line of code is "who may know what". A top-level folder is a trust zone, so what a folder may
include is written down here and nowhere else. Exit status 1 and one line `file:line: message` per offence;
--lengths also prints how long the files are.
"""

import argparse
import os
import pathlib
import re
import statistics
import sys

# (folder, repository prefixes it may include beside itself, system headers it may not include).
# First match wins: longer prefixes stand first.
NO_OS = r"^(sys/|linux/|netinet/|unistd\.h|fcntl\.h|poll\.h|spawn\.h|signal\.h|dlfcn\.h|pthread\.h)"
CUDA = r"^(cuda|nvml|cupti|nvPTX)"
GRPC = r"^(grpc|google/protobuf|absl/)"
BOOST = r"^boost/"
HEAVY_STD = r"^(iostream|regex|filesystem|fstream|sstream|string|vector|map|unordered_map|memory|functional|thread)$"
# What the node's programs share.
NODE = ["agent/node"]
# What every part of gpuloom-agent shares: strings, statuses, time.
AGENT = NODE + ["agent/cat.h", "agent/clock.h", "agent/testing"]
RULES = [
    ("proto/sync", [], [CUDA, GRPC, BOOST, HEAVY_STD], []),
    ("proto/wire", [], [NO_OS, CUDA, GRPC, BOOST, r"\.h$"], ["stdint.h"]),
    ("proto/channel", ["proto/wire"], [CUDA, GRPC, HEAVY_STD], []),
    ("proto/control", ["proto/channel", "proto/wire"], [CUDA, GRPC, BOOST], []),
    ("proto/trace", ["proto/channel", "proto/wire"], [CUDA, GRPC, BOOST], []),
    ("proto/cuda", [], [GRPC, BOOST], []),
    ("proto/libcuda", ["proto/cuda"], [GRPC, BOOST], []),
    ("proto/kubelet", [], [CUDA], []),
    # A program of its own, not a part of the tenant's.
    ("shim/trace", ["shim/session/door.h", "proto/wire", "proto/channel", "proto/trace"], [CUDA, GRPC, BOOST], []),
    ("shim", ["proto/wire", "proto/channel", "proto/cuda", "proto/libcuda"], [GRPC, BOOST, HEAVY_STD], []),
    ("agent/node", ["proto/channel"], [GRPC, CUDA, r"^spdlog/"], []),
    ("agent/arbiter", [], [NO_OS, CUDA, GRPC, BOOST, r"\.h$"], ["stdint.h"]),
    ("agent/simulator", ["agent/arbiter"], [NO_OS, CUDA, GRPC, BOOST, r"\.h$"], ["stdint.h"]),
    ("agent/executor", NODE + ["proto/wire", "proto/channel", "proto/control", "proto/cuda", "agent/arbiter"], [GRPC], []),
    ("agent/scheduler", NODE + ["proto/wire", "proto/channel", "proto/control", "proto/cuda", "agent/arbiter"], [GRPC, CUDA], []),
    ("agent/softgpu", ["proto/cuda", "proto/libcuda", "agent/node/size.h"], [GRPC, BOOST], []),
    ("agent/answer", [], [NO_OS, GRPC, CUDA, BOOST], []),
    ("agent/policy_command", NODE + ["agent/answer", "agent/arbiter/sm_division.h", "agent/policy", "agent/simulator"], [GRPC, CUDA, BOOST], []),
    ("agent/run", NODE + ["agent/answer", "agent/policy/policy_file.h", "agent/policy_command", "agent/testing/read_only.h", "proto/wire", "proto/channel", "proto/control", "proto/cuda", "proto/trace"], [GRPC, CUDA], []),
    ("agent/policy/in_force", AGENT + ["agent/policy", "agent/identity/kept_text.h"], [CUDA, BOOST, r"^grpc"], []),
    ("agent/policy", NODE + ["agent/arbiter/priority.h", "proto/channel/unique_fd.h"], [GRPC, CUDA, BOOST], []),
    ("agent/inventory", AGENT + ["proto/channel", "proto/cuda"], [r"^grpc", BOOST], []),
    ("agent/supervisor", AGENT + ["proto/wire", "proto/channel", "proto/control", "proto/cuda/driver_features.h", "agent/inventory"],
     [CUDA, r"^grpc", BOOST], []),
    ("agent/identity", AGENT + ["proto/kubelet", "proto/channel", "proto/control/messages.h"], [CUDA, BOOST], []),
    ("agent/events", AGENT + ["agent/supervisor", "agent/identity/state_file.h", "agent/identity/kept_text.h", "proto/control"],
     [CUDA, r"^grpc", BOOST], []),
    ("agent/metrics", AGENT + ["agent/supervisor", "agent/inventory", "agent/identity/kept_text.h", "agent/plugin/refused_requests.h", "proto/channel",
                               "proto/control", "proto/cuda/driver_api.h"], [CUDA, r"^grpc", BOOST], []),
    ("agent/plugin", AGENT + ["proto/kubelet", "proto/channel", "proto/control", "agent/identity", "agent/inventory", "agent/policy",
                              "agent/supervisor", "agent/log_lines.h"], [CUDA, BOOST], []),
    ("agent", ["proto/kubelet", "proto/control", "proto/channel", "proto/wire", "agent"],
     [CUDA, BOOST], []),
]
# Folders whose insides nobody else may include, whatever RULES say.
PRIVATE = ["shim", "agent/executor", "agent/scheduler", "agent/softgpu"]

# The rooms of a folder that is cut by nouns (docs/contributing.md), and the sources that stand at its door.
NOUNS = {"process", "session", "device", "memory", "copy", "module", "launch", "stream", "event", "graph", "image", "testing"}
ROOMS = {
    "shim": (NOUNS | {"context", "nvml", "trace"}, {"entry.cc", "error.cc", "exports_test.cc"}),
    "agent/executor": (NOUNS | {"printing", "trace"}, {"main.cc", "command_line.cc", "command_line.h", "command_line_test.cc"}),
    "agent/softgpu": ({"api", "driver", "exec", "ptx", "testing"}, set()),
    "agent/softgpu/exec": ({"decode", "machine", "cases", "testing"}, set()),
}

# Folders of which the change of one header compiles at most a third again, but for those that are named here with the
# reason (docs/design/executor-parts.md, "Headers").
WIDE = {
    "agent/executor": {"agent/executor/device/device.h": "every source that calls CUDA does it through the device"},
}
# Of fewer sources a third says nothing.
FEW_SOURCES = 12

BAD_NAMES = re.compile(r"(^|[_/])(util|utils|common|helper|helpers|manager|misc|impl)([_./]|$)")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
# Locks that clang's analysis cannot see through: proto/sync has those that it can.
UNSEEN_LOCK = re.compile(r"\bstd::(recursive_|timed_|shared_)?mutex\b|\bstd::(lock_guard|unique_lock|scoped_lock|shared_lock)\b|"
                         r"\bstd::condition_variable|\bpthread_(mutex|rwlock|cond)_|#\s*include <(mutex|shared_mutex|condition_variable)>")
# A lock that is declared, and the places that tell clang what it is for.
LOCK = re.compile(r"^\s*(?:(?:mutable|constinit|static|extern|inline) )*(?:gpuloom::)?(?:Lock|Mutex|SharedMutex) (\w+)( GPULOOM_\w+\(.*\))?(?:\{\})?;")
ANNOTATION = re.compile(r"(?:GPULOOM_\w+|\.Take)\([^;{)]*\)")
NOLINT = re.compile(r"//.*\bNOLINT(?:NEXTLINE|BEGIN|END)?\b(?:\(([^)]*)\))?")
TODO = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
GOOD_TODO = re.compile(r"\bTODO\(#\d+\): \S")
SOURCE = {".h", ".cc", ".cu", ".inc", ".def"}
TEXT = SOURCE | {".py", ".sh", ".cmake", ".txt", ".md", ".yaml", ".json", ".proto"}
MAX_LINES = 600
# One table, in which a reader looks for one message.
TABLES = {"proto/control/messages.h"}
SKIP = {".git", "build", ".cache"}


def Files(root):
    # What is skipped is not looked into: tests beside this one make and remove folders there.
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - SKIP)
        for name in sorted(names):
            path = pathlib.Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path, path.relative_to(root).as_posix()


def Rule(name):
    for rule in RULES:
        if name.startswith(rule[0] + "/"):
            return rule
    return None


def IsTestByName(name):
    return name.startswith("tests/") or "/testdata/" in name or "/testing/" in name or re.search(r"_(test|fuzz|bench)\.(cc|h)$", name)


class Tests:
    """Which files are tests: by their name, or because nothing but tests includes them or the header they belong to."""

    def __init__(self, includers):
        self.includers = includers
        self.known = {}

    def __contains__(self, name):
        if name not in self.known:
            self.known[name] = False  # a cycle of headers proves nothing
            header = re.sub(r"\.cc$", ".h", name)
            users = self.includers.get(header, set()) - {name, header}
            self.known[name] = bool(IsTestByName(name)) or bool(users) and all(user in self for user in users)
        return self.known[name]


def Includers(root):
    """{file: the files that include it}"""
    includers = {}
    for path, name in Files(root):
        if path.suffix in SOURCE:
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                include = INCLUDE.match(line)
                if include and include[1] == '"':
                    includers.setdefault(include[2], set()).add(name)
    return includers


def CheckInclude(root, tests, name, quote, target):
    """Why this include is wrong, or None."""
    ours = quote == '"' and (root / target).is_file()
    top = target.split("/", 1)[0]
    generated = target.endswith((".pb.h"))
    if quote == '"' and not ours and top in ("proto", "shim", "agent", "tests") and not generated:
        return f'"{target}" is not a file of this repository (includes start at its root)'
    if quote == '"' and (root / name).parent.joinpath(target).is_file() and not ours:
        if not name.startswith("tests/programs/"):
            return f'include it from the repository\'s root, not as "{target}"'
    if not name.startswith("tests/") and target.startswith("tests/") and name not in tests:
        return "product code does not include tests/"
    if "/testing/" in target and ours and name not in tests:
        return "product code does not include what is for tests"
    rule = Rule(name)
    if rule is None:
        return None
    folder, allowed, forbidden, excepted = rule
    if ours or generated:
        if target.startswith("tests/"):
            return None
        for private in PRIVATE:
            if target.startswith(private + "/") and not name.startswith(private + "/"):
                return f"{private}/ is not included from outside it"
        # Locks are everybody's.
        if target.startswith("proto/sync/") and folder != "proto/wire":
            return None
        if target.startswith(folder + "/") or any(target == a or target.startswith(a + "/") for a in allowed):
            return None
        if name in tests and target.startswith("proto/"):
            return None
        return f'{folder}/ may not include "{target}"'
    if name in tests or target in excepted:
        return None
    for pattern in forbidden:
        if re.search(pattern, target):
            return f"{folder}/ may not include <{target}>"
    return None


def EnabledChecks(root):
    """What .clang-tidy enables, as patterns: NOLINT of anything else does nothing."""
    settings = root / ".clang-tidy"
    text = re.sub(r"#.*", "", settings.read_text()) if settings.is_file() else ""
    return [re.escape(check).replace(r"\*", ".*") for check in re.findall(r"(?<![-\w])[a-z]+-[a-z*-]+", text)]


def UnusedLocks(root, lines):
    """(line number, name) of every lock that no annotation in the file or in what it includes names."""
    declared = [(number, found[1]) for number, line in enumerate(lines, 1)
                if (found := LOCK.match(line)) and not found[2]]
    if not declared:
        return []
    texts = ["\n".join(lines)]
    for line in lines:
        include = INCLUDE.match(line)
        if include and (root / include[2]).is_file():
            texts.append((root / include[2]).read_text(encoding="utf-8", errors="replace"))
    named = set(re.findall(r"\w+", " ".join(use for text in texts for use in ANNOTATION.findall(text))))
    return [(number, lock) for number, lock in declared if lock not in named]


def WrongRoom(name):
    """Why a source may not stand where it does, or None."""
    folder, base = name.rsplit("/", 1) if "/" in name else ("", name)
    top = "/".join(name.split("/")[:2])
    if name.startswith(("proto/", "agent/")) and name.count("/") > 1 and not top.endswith("/testing") and all(rule[0] != top for rule in RULES):
        return f"nothing says what {top}/ may include: give it a line in RULES (tests/layering/check.py) and in docs/contributing.md"
    if folder in ROOMS and base not in ROOMS[folder][1]:
        return f"it belongs into one of {folder}/'s folders: {', '.join(sorted(ROOMS[folder][0]))}"
    parent, room = folder.rsplit("/", 1) if "/" in folder else ("", folder)
    if parent in ROOMS and room not in ROOMS[parent][0] and folder not in ROOMS:
        return f"{parent}/ has no folder {room}: {', '.join(sorted(ROOMS[parent][0]))}"
    return None


def WideHeaders(names, includers, folder, named):
    """What is wrong with how many of the folder's sources include each of its headers, directly or not."""
    inside = [name for name in names if name.startswith(folder + "/")]
    sources = {name for name in inside if name.endswith(".cc")}
    if len(sources) < FEW_SOURCES:
        return
    for header in sorted(set(inside) - sources):
        found, left = {header}, [header]
        while left:
            more = includers.get(left.pop(), set()) - found
            found |= more
            left += more
        count = len(found & sources)
        is_wide = 3 * count > len(sources)
        if is_wide and header not in named:
            yield (f"{header}: {count} of {len(sources)} sources include it, more than a third: declare in headers what they only "
                   "point to, move out what few need, or give it a line in WIDE (tests/layering/check.py) and in docs/design/executor-parts.md")
        if not is_wide and header in named:
            yield f"{header}: only {count} of {len(sources)} sources include it: take its line out of WIDE (tests/layering/check.py)"


def Check(root):
    """All offences, as text."""
    includers = Includers(root)
    tests = Tests(includers)
    names = [name for path, name in Files(root) if path.suffix in SOURCE]
    offences = [offence for folder, named in WIDE.items() for offence in WideHeaders(names, includers, folder, named)]
    enabled = EnabledChecks(root)
    for path, name in Files(root):
        if BAD_NAMES.search(name):
            offences.append(f"{name}: name it for what it holds (util, common, helper, manager, misc, impl say nothing)")
        if path.suffix not in TEXT:
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if path.suffix in SOURCE:
            wrong_room = WrongRoom(name)
            if wrong_room:
                offences.append(f"{name}: {wrong_room}")
            if len(lines) > MAX_LINES and path.suffix != ".def" and name not in TABLES:
                offences.append(f"{name}: {len(lines)} lines, more than {MAX_LINES}: split it by noun")
            if path.suffix == ".h" and not any(line.strip() == "#pragma once" for line in lines):
                offences.append(f"{name}: no #pragma once")
            is_product = name.startswith(("proto/", "shim/", "agent/")) and name not in tests and not name.startswith("proto/sync/")
            if is_product:
                offences += [f"{name}:{number}: nothing says what {lock} guards: GPULOOM_GUARDED_BY({lock}), or on a function"
                             " GPULOOM_REQUIRES or GPULOOM_EXCLUDES" for number, lock in UnusedLocks(root, lines)]
            for number, line in enumerate(lines, 1):
                if is_product and UNSEEN_LOCK.search(line):
                    offences.append(f"{name}:{number}: a lock is one of proto/sync/mutex.h's or shim/process/futex.h's, so that clang sees who holds it")
                if nolint := NOLINT.search(line):
                    for lint in (nolint[1] or "a check by name").split(","):
                        if not any(re.fullmatch(check, lint.strip()) for check in enabled):
                            offences.append(f"{name}:{number}: .clang-tidy does not enable {lint.strip()}: there is nothing to silence")
                include = INCLUDE.match(line)
                reason = CheckInclude(root, tests, name, *include.groups()) if include else None
                if reason:
                    offences.append(f"{name}:{number}: {reason}")
        if not name.startswith("tests/layering/"):
            for number, line in enumerate(lines, 1):
                if TODO.search(line) and not GOOD_TODO.search(line):
                    offences.append(f"{name}:{number}: a TODO names an issue: TODO(#12): what")
    return offences


def PrintLengths(root):
    lengths = sorted((len(path.read_text(errors="replace").splitlines()), name)
                     for path, name in Files(root) if path.suffix in {".h", ".cc", ".cu"})
    if lengths:
        counts = [count for count, _ in lengths]
        print(f"{len(counts)} source files, median {statistics.median(counts):.0f} lines, "
              f"p90 {counts[len(counts) * 9 // 10]}, longest:")
        for count, name in lengths[-10:]:
            print(f"  {count:5} {name}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--lengths", action="store_true")
    arguments = parser.parse_args()
    offences = Check(arguments.root)
    for offence in offences:
        print(offence)
    if arguments.lengths:
        PrintLengths(arguments.root)
    print(f"layering: {len(offences)} offences")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
