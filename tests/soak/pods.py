# SPDX-License-Identifier: Apache-2.0
"""The pods of a soak: what their programs do, and how each must end when nobody disturbs it."""

import dataclasses

# A tenant without a toolkit. It checks every result; `rounds` kernels and copies of its own, then what `end` says.
PROGRAM = """
import ctypes, os, signal, sys
rounds, size, end = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments, wanted=0):
    status = getattr(cuda, name)(*arguments)
    if status != wanted:
        sys.exit(f"{name}: {status}")
context, memory, stream = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuStreamCreate", ctypes.byref(stream), 1)
back = (ctypes.c_uint32 * (size // 4))()
for number in range(rounds):
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    call("cuMemsetD32Async", memory, number, ctypes.c_size_t(size // 4), stream)
    call("cuMemcpyDtoHAsync_v2", back, memory, ctypes.c_size_t(size), stream)
    call("cuStreamSynchronize", stream)
    if back[0] != number or back[-1] != number:
        sys.exit(f"round {number}: read {back[0]}, {back[-1]}")
    call("cuMemFree_v2", memory)
if end == "greedy":
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 30), wanted=2)
if end == "dies":
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    call("cuMemsetD32Async", memory, 1, ctypes.c_size_t(size // 4), stream)
    os.kill(os.getpid(), signal.SIGKILL)
if end == "sits":
    signal.pause()
print("ok")
"""


@dataclasses.dataclass(frozen=True)
class Kind:
    """`end`: the program's; `phase`: how such a pod ends by itself."""
    end: str
    phase: str
    rounds: tuple = (1, 20)
    sizes: tuple = (4096, 1 << 20, 3 << 20)


KINDS = {
    "computes": Kind("ends", "Succeeded"),
    "greedy": Kind("greedy", "Succeeded"),  # asks for more than there is, and is refused
    "dies": Kind("dies", "Failed"),  # in the middle of its work
    "killed": Kind("sits", "Failed"),  # by us, while it sits there
}


def Pod(kind, namespace, name, random, python):
    """What fake-kubelet runs. The last word of the command is only by whom it is found."""
    chosen = KINDS[kind]
    command = [python, "-c", PROGRAM, str(random.randint(*chosen.rounds)), str(random.choice(chosen.sizes)), chosen.end,
               f"{namespace}/{name}"]
    # Two slots as such, or as a shape.
    wanted = random.choice(({"slots": 1}, {"slots": 2}, {"slots": 1, "resource": "gpuloom.io/gpu-x2"}))
    return {"namespace": namespace, "name": name, **wanted, "command": command, "timeoutSeconds": 300}
