# SPDX-License-Identifier: Apache-2.0
"""For tests: a tenant that counts with kernels, one after the other, and compares each result.

usage: counting_tenant.py count|tally|spin|fault|take|refused PROGRESS STOP

Writes its allocation's name and how many kernels have ended into PROGRESS; ends when STOP exists. The kernel is called as the
mode. `spin` runs one kernel, which ends then; that of `fault` stores where nothing is. `take` runs none, and takes 300 MiB;
`refused` asks for 128 MiB, which it must not get, and for a function that is not supported.
"""

import ctypes
import os
import sys
import time

PTX = rb"""
.version 8.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 at)
{
  .reg .b32 %r<2>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [at];
  ld.global.u32 %r1, [%d1];
  add.u32 %r1, %r1, 1;
  st.global.u32 [%d1], %r1;
  ret;
}
.visible .entry spin(.param .u64 at)
{
  .reg .pred %p; .reg .b32 %r<2>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [at];
AGAIN:
  ld.volatile.global.u32 %r1, [%d1];
  setp.eq.u32 %p, %r1, 0;
  @%p bra AGAIN;
  ret;
}
.visible .entry fault(.param .u64 at)
{
  .reg .b32 %r<2>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [at];
  mov.u32 %r1, 5;
  st.global.u32 [%d1], %r1;
  ret;
}
"""

cuda = ctypes.CDLL("libcuda.so.1")
mode, progress, stop = sys.argv[1:]
counts = mode in ("count", "tally")
if counts:
    PTX = PTX.replace(b"entry count(", b"entry " + mode.encode() + b"(")


def call(name, *arguments, wanted=0):
    status = getattr(cuda, name)(*arguments)
    if status != wanted:
        sys.exit(f"{name}: {status}")


def say(count):
    name = os.path.basename(os.environ["GPULOOM_SOCKET_DIR"])
    with open(progress + ".new", "w") as file:
        file.write(f"{name} {count}\n")
    os.replace(progress + ".new", progress)


def stay():
    while not os.path.exists(stop):
        time.sleep(0.01)


def start(function, address):
    at = ctypes.c_uint64(address)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(at))
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)


device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxPushCurrent_v2", context)
if mode not in ("take", "refused"):
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(function), module, mode.encode())
if counts:
    memory, value, count = ctypes.c_uint64(), ctypes.c_uint32(), 0
    call("cuMemAlloc_v2", ctypes.byref(memory), 4)
    call("cuMemsetD32_v2", memory, 0, 1)
    while not os.path.exists(stop):
        start(function, memory.value)
        call("cuMemcpyDtoH_v2", ctypes.byref(value), memory, 4)
        count += 1
        if value.value != count:
            sys.exit(f"kernel {count} has counted to {value.value}")
        say(count)
elif mode == "take":
    memory = ctypes.c_uint64()
    say(0)
    call("cuMemAlloc_v2", ctypes.byref(memory), 300 << 20)
    say(1)
    stay()
elif mode == "refused":
    call("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(128 << 20), wanted=2)  # CUDA_ERROR_OUT_OF_MEMORY
    call("cuGraphicsUnregisterResource", None, wanted=801)  # CUDA_ERROR_NOT_SUPPORTED
    say(1)
    stay()
elif mode == "fault":
    start(function, 0x10)
    call("cuCtxSynchronize", wanted=700)  # CUDA_ERROR_ILLEGAL_ADDRESS
    say(1)
    stay()
else:
    flag = ctypes.c_void_p()
    call("cuMemHostAlloc", ctypes.byref(flag), 4, 2)  # CU_MEMHOSTALLOC_DEVICEMAP
    word = ctypes.c_uint32.from_address(flag.value)
    word.value = 0
    start(function, flag.value)
    say(1)
    stay()
    word.value = 1
    call("cuCtxSynchronize")
    say(2)
