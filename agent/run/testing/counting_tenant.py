# SPDX-License-Identifier: Apache-2.0
"""For tests: a tenant that counts with kernels, one after the other, and compares each result.

usage: counting_tenant.py count|spin|take PROGRESS STOP

Writes its allocation's name and how many kernels have ended into PROGRESS; ends when STOP exists. `spin` runs one kernel, which
ends then; `take` runs none, and takes 300 MiB.
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
"""

cuda = ctypes.CDLL("libcuda.so.1")
mode, progress, stop = sys.argv[1:]


def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status:
        sys.exit(f"{name}: {status}")


def say(count):
    name = os.path.basename(os.environ["GPULOOM_SOCKET_DIR"])
    with open(progress + ".new", "w") as file:
        file.write(f"{name} {count}\n")
    os.replace(progress + ".new", progress)


def start(function, address):
    at = ctypes.c_uint64(address)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(at))
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)


device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxPushCurrent_v2", context)
if mode != "take":
    call("cuModuleLoadData", ctypes.byref(module), PTX)
    call("cuModuleGetFunction", ctypes.byref(function), module, mode.encode())
if mode == "count":
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
    while not os.path.exists(stop):
        time.sleep(0.01)
else:
    flag = ctypes.c_void_p()
    call("cuMemHostAlloc", ctypes.byref(flag), 4, 2)  # CU_MEMHOSTALLOC_DEVICEMAP
    word = ctypes.c_uint32.from_address(flag.value)
    word.value = 0
    start(function, flag.value)
    say(1)
    while not os.path.exists(stop):
        time.sleep(0.01)
    word.value = 1
    call("cuCtxSynchronize")
    say(2)
