// SPDX-License-Identifier: Apache-2.0
// What the graph model asks of the library it is compiled into: the shim and the software driver
// each define these. They call nothing of the model, and are called with or without GraphLock
// unless they say otherwise.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/node.h"

namespace gpuloom::graph {

// A stream, whatever its handle was. The key is never used for another stream while a capture may
// know it: ForgetStream comes first.
struct StreamRef {
  uint64_t key;
  bool legacy;    // the legacy default stream
  bool blocking;  // takes part in the legacy stream's barrier
};

// What a null stream handle means: the plain functions use the legacy default stream, the _ptsz
// ones the thread's own.
enum class NullStream : bool { kLegacy, kPerThread };

// NOT_INITIALIZED, or INVALID_DEVICE.
[[nodiscard]] CUresult CheckDevice(CUdevice device);
// cuInit was called. Without the lock.
[[nodiscard]] CUresult CheckInitialized();
// Initialised, healthy, a context current. Without the lock.
[[nodiscard]] CUresult CheckReady();
// The context that nodes get when the program names none; valid after CheckReady.
CUcontext CurrentContext();
// Null means the current one, which is found; anything else must be a living context.
bool IsContext(CUcontext context);

// INVALID_HANDLE when it is none. Without the lock: it may make the thread's own stream.
[[nodiscard]] CUresult ResolveStream(CUstream handle, NullStream null_means, StreamRef* stream);

// A CUfunction or CUkernel; INVALID_HANDLE when it is neither. May ask the executor. Without the
// lock.
[[nodiscard]] CUresult DescribeKernel(const void* handle, KernelLayout* layout);
// As a launch would judge the shape. Without the lock.
[[nodiscard]] CUresult CheckKernelShape(const KernelParams& kernel);

bool IsEvent(CUevent handle);
// Outside of captures.
bool WasRecorded(CUevent handle);

// Is all of [address, address + size_bytes) memory that a memset may write or a copy on the device
// side may touch?
bool IsDeviceReachable(CUdeviceptr address, uint64_t size_bytes);

// Memory of an allocation node; the program's cuMemFree does not reach it. Without the lock.
[[nodiscard]] CUresult AllocateForGraph(size_t size_bytes, CUdeviceptr* address);
// Work that was queued may still use it. May find that the context has taken it along.
void FreeForGraph(CUdeviceptr address);

}  // namespace gpuloom::graph
