# SPDX-License-Identifier: Apache-2.0
"""For tests: a tenant that compiles a kernel by NVRTC and links it by nvJitLink, and says what NVRTC tells of its cache.

usage: compiling_tenant.py FOLDER

FOLDER holds the toolkit's libraries. The last line is a hash of all that was made.
"""

import ctypes
import hashlib
import sys

SOURCE = b'extern "C" __global__ void one(float* x) { x[threadIdx.x] = 1; }'

nvrtc = ctypes.CDLL(f"{sys.argv[1]}/libnvrtc.so")
linker = ctypes.CDLL(f"{sys.argv[1]}/libnvJitLink.so")


def call(library, name, *arguments):
    status = getattr(library, name)(*arguments)
    if status:
        sys.exit(f"{name}: {status}")


def read(library, prefix, what, handle):
    size = ctypes.c_size_t()
    call(library, f"{prefix}Get{what}Size", handle, ctypes.byref(size))
    data = ctypes.create_string_buffer(size.value)
    call(library, f"{prefix}Get{what}", handle, data)
    return data.raw


def compiled(architecture, what):
    program = ctypes.c_void_p()
    call(nvrtc, "nvrtcCreateProgram", ctypes.byref(program), SOURCE, b"one.cu", 0, None, None)
    options = (ctypes.c_char_p * 2)(b"--gpu-architecture=" + architecture, b"--enable-cache-trace")
    call(nvrtc, "nvrtcCompileProgram", program, 2, options)
    print(read(nvrtc, "nvrtc", "ProgramLog", program).rstrip(b"\0").decode())
    made = read(nvrtc, "nvrtc", what, program)
    call(nvrtc, "nvrtcDestroyProgram", ctypes.byref(program))
    return made


def linked(ptx):
    handle = ctypes.c_void_p()
    options = (ctypes.c_char_p * 1)(b"-arch=sm_90")
    call(linker, "nvJitLinkCreate", ctypes.byref(handle), 1, options)
    call(linker, "nvJitLinkAddData", handle, 2, ptx, len(ptx), b"one")  # NVJITLINK_INPUT_PTX
    call(linker, "nvJitLinkComplete", handle)
    made = read(linker, "nvJitLink", "LinkedCubin", handle)
    call(linker, "nvJitLinkDestroy", ctypes.byref(handle))
    return made


ctypes.CDLL("libcuda.so.1").cuInit(0)
ptx = compiled(b"compute_90", "PTX")
print(hashlib.sha256(compiled(b"sm_90", "CUBIN") + ptx + linked(ptx)).hexdigest())
