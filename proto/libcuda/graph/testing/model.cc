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
