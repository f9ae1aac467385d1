#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a tenant that allocates and frees without end takes from a neighbour that fills memory without end.

  allocation_churn.py --gpuloom PATH/gpuloom [--domains same,other] [--seconds 5] [--ceiling 5%]

New memory is cleared before its tenant gets it, and the sizes differ, so that none of it is what the tenant had kept. Prints
for each arrangement the neighbour's rate against its rate alone in the same run, and how much was allocated meanwhile.
"""

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20


def cuda(library, name, *arguments):
    result = getattr(library, name)(*arguments)
    if result != 0:
        sys.exit(f"allocation_churn: {name}: CUDA error {result}")


def prepare():
    library = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    cuda(library, "cuInit", 0)
    cuda(library, "cuDeviceGet", ctypes.byref(device), 0)
    cuda(library, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda(library, "cuCtxSetCurrent", context)
    return library


def allocate(library, size):
    address = ctypes.c_uint64()
    cuda(library, "cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    return address


def wait_for_start():
    print("ready", flush=True)
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)  # nobody asks any more
    return float(line)


def fill(mib):
    """Fills `mib` again and again, until standard input says how long, for how often it is asked."""
    library = prepare()
    address = allocate(library, mib * MIB)
    while True:
        seconds = wait_for_start()
        end_s, fills = time.monotonic() + seconds, 0
        begin_s = time.monotonic()
        while time.monotonic() < end_s:
            for _ in range(4):
                cuda(library, "cuMemsetD32Async", address, 0, ctypes.c_size_t(mib * MIB // 4), None)
            cuda(library, "cuCtxSynchronize")
            fills += 4
        print(fills * mib / 1024 / (time.monotonic() - begin_s), flush=True)


def churn(mib):
    """Allocates and frees about `mib` again and again, each time of another size."""
    library = prepare()
    while True:
        seconds = wait_for_start()
        begin_s = time.monotonic()
        total_mib, turn = 0, 0
        while time.monotonic() < begin_s + seconds:
            size_mib = mib - 2 * (turn % 100)
            cuda(library, "cuMemFree_v2", allocate(library, size_mib * MIB))
            total_mib += size_mib
            turn += 1
        print(total_mib / 1024 / (time.monotonic() - begin_s), flush=True)


class Tenant:
    def __init__(self, options, state, domain, slots, terms, *command):
        self.process = subprocess.Popen(
            [options.gpuloom, "run", *options.driver, "--state-dir", state, "--slots", str(slots), "--domain", domain, *terms, "--",
             sys.executable, os.path.abspath(__file__), *map(str, command)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.expect("ready")

    def expect(self, what=None):
        line = self.process.stdout.readline().strip()
        if not line or (what and line != what):
            sys.exit(f"allocation_churn: a tenant ended or said {line!r}")
        return line

    def start(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()

    def rate(self):
        rate = float(self.expect())
        self.expect("ready")
        return rate

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(options, arrangement):
    with tempfile.TemporaryDirectory(prefix="gpuloom-churn-", ignore_cleanup_errors=True) as state:
        ceiling = ["--time-share-max", options.ceiling] if options.ceiling else []
        filler = Tenant(options, state, "one", 2, [], "--fill", options.fill_mib)
        churner = Tenant(options, state, "one" if arrangement == "same" else "two", 6, ceiling, "--churn", options.churn_mib)
        try:
            for tenants in ((filler,), (filler, churner)):  # warm up
                for tenant in tenants:
                    tenant.start(1)
                for tenant in tenants:
                    tenant.rate()
            filler.start(options.seconds)
            alone = filler.rate()
            churner.start(options.seconds)
            churn_alone = churner.rate()
            filler.start(options.seconds)
            churner.start(options.seconds)
            beside, churned = filler.rate(), churner.rate()
        finally:
            filler.end()
            churner.end()
    print(f"{arrangement}\t{alone:.0f}\t{beside:.0f}\t{beside / alone:.3f}\t{churn_alone:.0f}\t{churned:.0f}", flush=True)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpuloom")
    parser.add_argument("--softgpu", dest="driver", action="store_const", const=["--softgpu"], default=[])
    parser.add_argument("--domains", default="same,other")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--ceiling", metavar="PERCENT", help="timeShareMax of the tenant that allocates, as 5%%")
    parser.add_argument("--fill-mib", type=int, default=1024)
    parser.add_argument("--churn-mib", type=int, default=20480)
    parser.add_argument("--fill", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--churn", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.fill:
        return fill(options.fill)
    if options.churn:
        return churn(options.churn)
    if not options.gpuloom:
        parser.error("--gpuloom is missing")
    print("domain\tfills alone, GiB/s\tbeside\tratio\tallocated alone, GiB/s\tbeside")
    for arrangement in options.domains.split(","):
        measure(options, arrangement)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
