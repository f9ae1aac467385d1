// SPDX-License-Identifier: Apache-2.0
// What the graph model needs from the library it is compiled into: the shim and the software driver
// each define these. They call nothing of the model, and are called with or without GraphLock
// unless stated otherwise.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/default_stream.h"
#include "proto/libcuda/graph/node.h"

namespace gpuloom::graph {

// A stream, whatever its handle was. The key is not reused for another stream while a capture may
// know it: ForgetStream comes first.
struct StreamRef {
  uint64_t key;
  bool legacy;    // the legacy default stream
  bool blocking;  // takes part in the legacy stream's barrier
};

// NOT_INITIALIZED, or INVALID_DEVICE.
[[nodiscard]] CUresult CheckDevice(CUdevice device);
// cuInit was called, and this is no host function. Without the lock.
[[nodiscard]] CUresult CheckInitialized();
// Initialised, healthy, a context current. Without the lock.
[[nodiscard]] CUresult CheckReady();
// The context that nodes get when the program names none; valid after CheckReady.
CUcontext CurrentContext();
// Null means the current context; anything else must be a live one.
bool IsContext(CUcontext context);

// INVALID_HANDLE if it is not a stream. Without the lock: it may create the thread's own stream.
[[nodiscard]] CUresult ResolveStream(CUstream handle, DefaultStream null_means, StreamRef* stream);

// A CUfunction or CUkernel; INVALID_HANDLE if it is neither. May ask the executor. Without the
// lock.
[[nodiscard]] CUresult DescribeKernel(const void* handle, KernelLayout* layout);
// Checks the shape as a launch would. Without the lock.
[[nodiscard]] CUresult CheckKernelShape(const KernelParams& kernel);

bool IsEvent(CUevent handle);
// Recorded outside of captures.
bool WasRecorded(CUevent handle);

// Whether all of [address, address + size_bytes) is memory that a memset may write or the device
// side of a copy may touch.
bool IsDeviceReachable(CUdeviceptr address, uint64_t size_bytes);

// Memory of a small allocation node; the program's cuMemFree does not reach it. Without the lock.
[[nodiscard]] CUresult AllocateForGraph(size_t size_bytes, CUdeviceptr* address);
// Queued work may still use it. The memory may already be gone with its context.
void FreeForGraph(CUdeviceptr address);

// Physical memory of cuMemCreate.
struct GraphPiece {
  CUmemGenericAllocationHandle handle;
  uint64_t size_bytes;
};
// Maps the pieces side by side at addresses of cuMemAddressReserve, where they are one allocation of so many bytes that
// the program cannot free, unmap or share with other processes. Leaves nothing mapped if it fails.
[[nodiscard]] CUresult MapForGraph(CUdeviceptr address, uint64_t size_bytes, CUdevice device,
                                   const GraphPiece* pieces, size_t count);
// Unmaps what MapForGraph has mapped. No work uses it.
void UnmapForGraph(CUdeviceptr address, const GraphPiece* pieces, size_t count);
// Waits until all work queued so far is done; fails when it never will be. With or without the lock, but in the former
// case what waits for another thread of the program may wait for ever.
[[nodiscard]] CUresult FinishWork(CUdevice device);

}  // namespace gpuloom::graph
