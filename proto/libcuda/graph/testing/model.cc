// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/graph/testing/model.h"

#include "proto/libcuda/graph/conditional.h"
#include "proto/libcuda/graph/exec.h"

namespace gpuloom::graph {

TestingLibrary library;

CUresult CheckDevice(CUdevice) { return CUDA_SUCCESS; }
CUresult AllocateForGraph(size_t, CUdeviceptr* address) {
  *address = 0x1000 * ++library.last_address;
  return CUDA_SUCCESS;
}
void FreeForGraph(CUdeviceptr address) { library.freed.push_back(address); }
CUresult MapForGraph(CUdeviceptr address, uint64_t size_bytes, CUdevice, const GraphPiece* pieces,
                     size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(library.handles.at(pieces[i].handle), pieces[i].size_bytes);
    library.mapped[address].push_back(pieces[i].handle);
    bytes += pieces[i].size_bytes;
  }
  EXPECT_GE(bytes, size_bytes);
  return CUDA_SUCCESS;
}
void UnmapForGraph(CUdeviceptr address, const GraphPiece*, size_t) {
  EXPECT_EQ(library.mapped.erase(address), 1u);
}
CUresult FinishWork(CUdevice) {
  ++library.waits;
  if (library.lost) return CUDA_ERROR_LAUNCH_FAILED;
  library.running.clear();
  return CUDA_SUCCESS;
}
CUresult CheckInitialized() { return CUDA_SUCCESS; }
CUresult CheckReady() { return CUDA_SUCCESS; }
CUcontext CurrentContext() { return nullptr; }
bool IsContext(CUcontext) { return true; }
CUresult ResolveStream(CUstream handle, DefaultStream, StreamRef* stream) {
  *stream = {reinterpret_cast<uint64_t>(handle), handle == nullptr, false};
  return CUDA_SUCCESS;
}
CUresult DescribeKernel(const void*, KernelLayout*) { return CUDA_ERROR_INVALID_HANDLE; }
CUresult CheckKernelShape(const KernelParams&) { return CUDA_SUCCESS; }
bool IsEvent(CUevent) { return true; }
bool WasRecorded(CUevent event) { return library.recorded.count(event) != 0; }
bool IsDeviceReachable(CUdeviceptr, uint64_t) { return true; }
CUresult DriverInstantiate(Exec* exec, Node**) {
  exec->driver = exec;
  return CUDA_SUCCESS;
}
CUresult DriverUpdate(Exec*, const StepChange*, uint32_t count, uint32_t*) {
  library.updates += count;
  return CUDA_SUCCESS;
}
CUresult DriverLaunch(Exec*, CUstream, DefaultStream) { return CUDA_SUCCESS; }
CUresult DriverUpload(Exec*, CUstream, DefaultStream) { return CUDA_SUCCESS; }
bool DriverDone(const Exec& exec) { return library.running.count(&exec) == 0; }
void DriverFinish(Exec*) {}
void DriverDestroy(Exec*) { ++library.destroyed_execs; }
CUresult DriverMakeCondition(Graph* root, unsigned, unsigned, CUgraphConditionalHandle* handle) {
  if (library.last_handle == library.most_handles) return CUDA_ERROR_OUT_OF_MEMORY;
  library.reservations += root->reservation == nullptr;
  root->reservation = root;
  *handle = ++library.last_handle;
  return CUDA_SUCCESS;
}
void DriverDropConditions(Graph* root) {
  --library.reservations;
  root->reservation = nullptr;
}

}  // namespace gpuloom::graph

using gpuloom::graph::library;

extern "C" {

CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = size_t{64} << 30;
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* all_bytes) {
  *free_bytes = library.free_bytes;
  *all_bytes = library.all_bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size_bytes, size_t, CUdeviceptr,
                             unsigned long long) {
  *address = library.last_range += size_t{1} << 40;
  EXPECT_EQ(size_bytes % gpuloom::graph::kGranuleBytes, 0u);
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, size_t) {
  EXPECT_EQ(library.mapped.count(address), 0u);
  library.freed.push_back(address);
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size_bytes,
                     const CUmemAllocationProp*, unsigned long long) {
  if (size_bytes > library.free_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  library.free_bytes -= size_bytes;
  *handle = ++library.last_physical;
  library.handles[*handle] = size_bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  library.free_bytes += library.handles.at(handle);
  library.handles.erase(handle);
  return CUDA_SUCCESS;
}

}  // extern "C"
