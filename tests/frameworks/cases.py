# SPDX-License-Identifier: Apache-2.0
"""Named cases of one program, run in one process because starting a framework takes longer than most of them.

    @case("matrix product")
    def _():
        return hash_of(a @ b)          # what native and gpuloom must agree on

    if __name__ == "__main__":
        main()

main prints one line for each case:

    case<TAB>ok|failed|skipped<TAB>value<TAB>seconds<TAB>message

A case fails by raising; the others go on. Skip says what is missing on this machine. The message is for people and is
not compared. At the end comes a line about this process, for the runner:

    process<TAB>NVIDIA devices open<TAB>NVIDIA driver libraries mapped       lists, or "none"
"""

import hashlib
import os
import pathlib
import re
import sys
import time
import traceback

_cases = []
_notes = []


class Skip(Exception):
    """What the case needs is not on this machine."""


def case(name):
    def register(body):
        _cases.append((name, body))
        return body
    return register


def note(text):
    """Adds to the message of the running case."""
    _notes.append(str(text))


def need(module):
    """The imported module, or this case is skipped."""
    try:
        return __import__(module, fromlist=["_"])
    except ImportError as error:
        raise Skip(f"{module} is not here: {error}") from error


def expect(holds, what):
    if not holds:
        raise AssertionError(what)


def _bytes_of(value):
    if hasattr(value, "detach"):  # a torch tensor of any type, also those that NumPy lacks
        import torch
        value = value.detach().to("cpu").contiguous()
        if value.is_complex():
            value = torch.view_as_real(value)
        return value.reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b""
    if hasattr(value, "get") and hasattr(value, "__cuda_array_interface__"):  # CuPy
        value = value.get()
    if isinstance(value, (int, float, str, bool, complex)):
        return repr(value).encode()
    import numpy
    return numpy.ascontiguousarray(numpy.asarray(value)).tobytes()


def hash_of(*values):
    """16 hexadecimal digits of the SHA-256 of all bytes."""
    digest = hashlib.sha256()
    for value in values:
        for part in value if isinstance(value, (list, tuple)) else (value,):
            digest.update(_bytes_of(part))
    return digest.hexdigest()[:16]


def losses(values):
    """The last loss to its last digit, and a hash of all."""
    values = [float(value) for value in values]
    return f"{values[-1]!r} {hash_of(values)}"


def _one_line(text, limit=300):
    return re.sub(r"\s+", " ", str(text)).strip()[:limit]


def nvidia_traces():
    """(open /dev/nvidia* files, mapped libraries of NVIDIA's driver) of this process."""
    devices, libraries = set(), set()
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("/dev/nvidia"):
            devices.add(target)
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(None, 5)[5].strip() if line.count("/") else ""
            # The driver's own files carry its version: libcuda.so.580.159.04.
            if re.match(r"lib(cuda|nvidia-ml)\.so\.\d+\.\d+", os.path.basename(path)):
                libraries.add(os.path.basename(path))
    return sorted(devices), sorted(libraries)


def main():
    wanted = sys.argv[1:]
    failed = 0
    for name, body in _cases:
        if wanted and name not in wanted:
            continue
        _notes.clear()
        start_s = time.perf_counter()
        status, value, message = "ok", "", ""
        try:
            value = body()
        except Skip as reason:
            status, message = "skipped", reason
        except Exception as error:  # every case is reported, whatever ended it
            status, value, message = "failed", type(error).__name__, error
            traceback.print_exc()
            failed += 1
        seconds = time.perf_counter() - start_s
        text = _one_line(message or "; ".join(_notes))
        print(f"{name}\t{status}\t{_one_line(value)}\t{seconds:.3f}\t{text}", flush=True)
    devices, libraries = nvidia_traces()
    print(f"process\t{','.join(devices) or 'none'}\t{','.join(libraries) or 'none'}", flush=True)
    sys.exit(1 if failed else 0)
