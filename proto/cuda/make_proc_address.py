#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes proc_address.def from the CUDA Toolkit: make_proc_address.py [TOOLKIT] > proc_address.def

Reads the function pointer types PFN_<name>_v<version>[_ptds|_ptsz] of cudaTypedefs.h and cudaProfilerTypedefs.h, and the
names that the stub libcuda.so exports. The exported ABIs of a name are <name>, <name>_v2, <name>_v3, …: as many as it has
versions, in the order of the versions. proc_address.cc then has the compiler check that each pair has one and the same
type; this script refuses a toolkit in which names and versions do not pair up.
"""
import collections
import pathlib
import re
import subprocess
import sys

HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// What cuGetProcAddress answers: PROC_ADDRESS(name, version, per_thread, symbol, type). `symbol` is the exported function
// that a request for `name` means from CUDA `version` on (until a later row of the same name), `type` the toolkit's own
// type for it; per_thread rows are for callers with per-thread default streams. Sorted by name, per_thread, version.
// Made by make_proc_address.py from the CUDA 13.0 Toolkit; every row's type is checked when proc_address.cc is compiled.
"""


def main() -> int:
    toolkit = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/usr/local/cuda")
    headers = "".join(
        (toolkit / "include" / name).read_text() for name in ("cudaTypedefs.h", "cudaProfilerTypedefs.h")
    )
    stub = toolkit / "lib64" / "stubs" / "libcuda.so"
    listing = subprocess.run(["nm", "-D", "--defined-only", stub], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[2] for line in listing.splitlines()}

    versions = collections.defaultdict(list)
    for name, version, suffix in re.findall(r"\(CUDAAPI \*\s*PFN_(cu\w+?)_v(\d+)(_ptds|_ptsz|)\)", headers):
        versions[name, suffix].append(int(version))

    rows = []
    for (name, suffix), numbers in versions.items():
        numbers.sort()
        abis = [name + suffix] + [f"{name}_v{i}{suffix}" for i in range(2, 10)]
        symbols = [symbol for symbol in abis if symbol in exported]
        # The per-thread forms of the first ABI may be missing: <name>_v2_ptds stands alone. The lists still pair up.
        if len(symbols) != len(numbers):
            print(f"{name}{suffix}: versions {numbers}, but the stub exports {symbols}", file=sys.stderr)
            return 1
        for version, symbol in zip(numbers, symbols):
            rows.append((name, suffix != "", version, symbol, f"PFN_{name}_v{version}{suffix}"))

    missing = exported - {row[3] for row in rows}
    if missing:
        print(f"exported, but without a type in the headers: {sorted(missing)}", file=sys.stderr)
        return 1
    rows.sort()
    sys.stdout.write(HEAD)
    for name, per_thread, version, symbol, type_name in rows:
        print(f"PROC_ADDRESS({name}, {version}, {str(per_thread).lower()}, {symbol}, {type_name})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
