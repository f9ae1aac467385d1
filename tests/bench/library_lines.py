# SPDX-License-Identifier: Apache-2.0
"""Lines about loading a large library of kernels: by the first process that needs it, and by the next one beside it."""

import pathlib
import struct
import sys
import tempfile

from processes import Failed

MAGIC = 0xBA55ED50
MOST_BYTES = 64 << 20


def fatbins(data):
    """(offset, size) of each fatbin in the bytes of a program or library."""
    pattern, at = struct.pack("<I", MAGIC), 0
    while (at := data.find(pattern, at)) >= 0:
        version, header_bytes, body_bytes = struct.unpack_from("<HHQ", data, at + 4) if at + 16 <= len(data) else (0, 0, 0)
        size = header_bytes + body_bytes
        if version == 1 and header_bytes == 16 and at + size <= len(data):
            yield at, size
            at += size
        else:
            at += 4


def find_large_image():
    """The largest fatbin, of those that are not huge, of the cuBLAS that is here; None without one."""
    places = [pathlib.Path(folder) for folder in (*sys.path, "/usr/local/cuda/lib64") if folder]
    for pattern in ("nvidia/*/lib/libcublas.so.*", "torch/lib/libcublas.so.*", "libcublas.so.*"):
        for place in places:
            for path in sorted(place.glob(pattern)):
                data = path.read_bytes()
                found = [(size, at) for at, size in fatbins(data) if size <= MOST_BYTES]
                if found:
                    size, at = max(found)
                    return path.name, data[at:at + size]
    return None


def load(run, side, name, image):
    bench = run.sides.start(side, "--load", image)
    try:
        line = next(bench.lines(timeout_s=60), None)
        if line is None or "error" in line:
            raise Failed(line["error"] if line else f"{bench.what}: said nothing")
        bench.wait_ready()
        run.results.add(name, side, "ms", line["median"])
    except BaseException:
        bench.end()
        raise
    return bench


def measure_side(run, side, image):
    with run.part("library_load_first", side):
        first = load(run, side, "library_load_first", image)
        try:
            second = load(run, side, "library_load_second", image)
            second.end()
        finally:
            first.end()


def measure(run):
    if not (run.wants("micro", "library_load_first") or run.wants("micro", "library_load_second")):
        return
    with tempfile.NamedTemporaryFile(prefix="gpuloom-image-") as file:
        image = "-"
        if run.full:
            found = find_large_image()
            if found is None:
                run.results.add_note("library_load: no cuBLAS here, the benchmark's own small kernels instead")
            else:
                name, data = found
                run.results.add_note(f"library_load: a fatbin of {name}, {len(data) / (1 << 20):.1f} MiB")
                file.write(data)
                file.flush()
                image = file.name
        for number in range(run.options.rounds):
            if run.no_time_for("library_load", 10 if run.full else 0):
                return
            for side in run.in_turn(number):
                measure_side(run, side, image)
