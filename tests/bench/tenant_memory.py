#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a tenant costs in GPU memory beside its allocations: the second and later ones of a trust domain.

  tenant_memory.py --bench PATH/gpuloom-bench --gpuloom PATH/gpuloom [--limit-mib 20]

Each tenant is idle: it has a context, a stream, a small module and one launch behind it. The memory is what nvidia-smi
says of the whole GPU, so nothing else may run there. Prints one line for each number of tenants; exit status 1 when a
further tenant costs more than the limit.
"""

import argparse
import pathlib
import sys
import tempfile
import time

import node
import processes


def settled_mib(gpu, seconds=5.0):
    """Memory in use, once it has stayed the same for half a second."""
    deadline_s = time.monotonic() + seconds
    last, since_s = node.memory_used_mib(gpu), time.monotonic()
    while time.monotonic() < deadline_s and time.monotonic() - since_s < 0.5:
        time.sleep(0.1)
        now = node.memory_used_mib(gpu)
        if now != last:
            last, since_s = now, time.monotonic()
    return last


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True, help="gpuloom-bench")
    parser.add_argument("--gpuloom", required=True)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--tenants", type=int, default=5)
    parser.add_argument("--limit-mib", type=float, default=20)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gpuloom-memory-", ignore_cleanup_errors=True) as folder:
        sides = processes.Sides(options.bench, "libcuda.so.1", options.gpuloom, ["--gpu", str(options.gpu)],
                                pathlib.Path(folder, "state"), options.gpu)
        used_mib = {0: settled_mib(options.gpu)}
        with processes.Holders(sides, "gpuloom", 1, 120):
            used_mib[1] = settled_mib(options.gpu)
            for count in range(2, options.tenants + 1):
                more = processes.Holders(sides, "gpuloom", count - 1, 120)
                with more:
                    used_mib[count] = settled_mib(options.gpu)
        print(f"tenants\tMiB in use\tMiB more for each behind the first\n0\t{used_mib[0]}\t")
        print(f"1\t{used_mib[1]}\t(the executor's context: {used_mib[1] - used_mib[0]} MiB)")
        worst = 0.0
        for count in range(2, options.tenants + 1):
            each = (used_mib[count] - used_mib[1]) / (count - 1)
            worst = max(worst, each)
            print(f"{count}\t{used_mib[count]}\t{each:.1f}")
    print(f"a further tenant costs at most {worst:.1f} MiB; the limit is {options.limit_mib:g} MiB")
    return 0 if worst <= options.limit_mib else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
