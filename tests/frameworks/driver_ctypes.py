# SPDX-License-Identifier: Apache-2.0
"""The driver API by ctypes, found as Numba finds it: dlopen("libcuda.so"). Needs nothing but Python."""

import array
import ctypes

from cases import case, expect, hash_of, main, note

PTX = rb"""
.version 8.0
.target sm_70
.address_size 64
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
  .reg .pred %p; .reg .b32 %r<5>; .reg .f32 %f<4>; .reg .b64 %d<5>;
  ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; ld.param.f32 %f1, [a]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.u32 %r2, %r2, %r3, %r4;
  setp.ge.u32 %p, %r2, %r1;
  @%p bra END;
  mul.wide.u32 %d3, %r2, 4;
  add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3;
  ld.global.f32 %f2, [%d1]; ld.global.f32 %f3, [%d2];
  fma.rn.f32 %f3, %f1, %f2, %f3;
  st.global.f32 [%d2], %f3;
END:
  ret;
}
"""

_state = {}


def check(status, what):
    if status:
        text = ctypes.c_char_p()
        cuda().cuGetErrorName(status, ctypes.byref(text))
        raise AssertionError(f"{what}: {(text.value or b'?').decode()}")


def cuda():
    if "library" not in _state:
        _state["library"] = ctypes.CDLL("libcuda.so")
    return _state["library"]


def context():
    if "context" not in _state:
        check(cuda().cuInit(0), "cuInit")
        device, made = ctypes.c_int(), ctypes.c_void_p()
        check(cuda().cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
        check(cuda().cuDevicePrimaryCtxRetain(ctypes.byref(made), device), "cuDevicePrimaryCtxRetain")
        check(cuda().cuCtxPushCurrent_v2(made), "cuCtxPushCurrent")
        _state["context"] = made
    return _state["context"]


@case("dlopen of libcuda.so")
def _():
    version = ctypes.c_int()
    check(cuda().cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
    note(version.value)
    return version.value >= 12000


@case("libcuda.so and libcuda.so.1 are one library")
def _():
    again = ctypes.CDLL("libcuda.so.1")
    one, other = (ctypes.cast(library.cuInit, ctypes.c_void_p).value for library in (cuda(), again))
    return one == other


@case("devices")
def _():
    context()
    count, name = ctypes.c_int(), ctypes.create_string_buffer(100)
    check(cuda().cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    check(cuda().cuDeviceGetName(name, 100, 0), "cuDeviceGetName")
    values = []
    for attribute in (1, 2, 3, 8, 10, 16, 75, 76, 81):  # limits, multiprocessors, capability
        value = ctypes.c_int()
        check(cuda().cuDeviceGetAttribute(ctypes.byref(value), attribute, 0), "cuDeviceGetAttribute")
        values.append(value.value)
    return count.value, name.value.decode(), values


@case("compile with the driver and launch")
def _():
    context()
    library, n = cuda(), 100_000
    log = ctypes.create_string_buffer(4096)
    options = (ctypes.c_int * 2)(3, 4)  # where the compiler's messages go, and how long they may be
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), 4096)
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    check(library.cuModuleLoadDataEx(ctypes.byref(module), PTX, 2, options, values), "cuModuleLoadDataEx")
    check(library.cuModuleGetFunction(ctypes.byref(kernel), module, b"saxpy"), "cuModuleGetFunction")
    x, y = ctypes.c_uint64(), ctypes.c_uint64()
    for memory in (x, y):
        check(library.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4 * n)), "cuMemAlloc")
    host_x = (ctypes.c_float * n)(*range(n))
    host_y = (ctypes.c_float * n)(*(3.0 for _ in range(n)))
    check(library.cuMemcpyHtoD_v2(x, host_x, ctypes.c_size_t(4 * n)), "cuMemcpyHtoD")
    check(library.cuMemcpyHtoD_v2(y, host_y, ctypes.c_size_t(4 * n)), "cuMemcpyHtoD")
    a, count = ctypes.c_float(0.5), ctypes.c_uint(n)
    arguments = (ctypes.c_void_p * 4)(*(ctypes.addressof(v) for v in (x, y, a, count)))
    stream = ctypes.c_void_p()
    check(library.cuStreamCreate(ctypes.byref(stream), 1), "cuStreamCreate")
    check(library.cuLaunchKernel(kernel, (n + 255) // 256, 1, 1, 256, 1, 1, 0, stream, arguments, None), "cuLaunchKernel")
    check(library.cuStreamSynchronize(stream), "cuStreamSynchronize")
    check(library.cuMemcpyDtoH_v2(host_y, y, ctypes.c_size_t(4 * n)), "cuMemcpyDtoH")
    expect(all(host_y[i] == 0.5 * i + 3 for i in range(0, n, 997)), "wrong element")
    for memory in (x, y):
        check(library.cuMemFree_v2(memory), "cuMemFree")
    check(library.cuModuleUnload(module), "cuModuleUnload")
    check(library.cuStreamDestroy_v2(stream), "cuStreamDestroy")
    return hash_of(str(array.array("f", host_y).tobytes()))


@case("functions by name and version")
def _():
    context()
    found = []
    for name, version in ((b"cuMemAlloc", 3020), (b"cuLaunchKernelEx", 11060), (b"cuGraphInstantiate", 12000),
                          (b"cuNoSuchFunction", 12000), (b"cuCtxGetDevice", 13000)):
        pointer, status = ctypes.c_void_p(), ctypes.c_int()
        result = cuda().cuGetProcAddress_v2(name, ctypes.byref(pointer), version, ctypes.c_uint64(0), ctypes.byref(status))
        found.append((result, status.value, bool(pointer.value)))
    return found


@case("errors have names")
def _():
    context()
    memory = ctypes.c_uint64()
    status = cuda().cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(0))
    text = ctypes.c_char_p()
    cuda().cuGetErrorString(status, ctypes.byref(text))
    return status, text.value.decode()


if __name__ == "__main__":
    main()
