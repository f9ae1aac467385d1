// What the graph model asks of the shim.
#include "proto/cuda/graph/library.h"

#include "shim/capture.h"
#include "shim/context.h"
#include "shim/event.h"
#include "shim/kernel.h"
#include "shim/launch.h"
#include "shim/memory.h"
#include "shim/session.h"
#include "shim/stream.h"

namespace gpuloom {

graph::StreamRef RefOf(wire::StreamId stream) {
  const auto id = static_cast<uint32_t>(stream);
  return {id, stream == wire::kLegacyStream, stream != wire::kLegacyStream && BlocksLegacy(stream)};
}

namespace graph {

CUresult CheckInitialized() {
  return session.state() == Session::State::kInitialized ? CUDA_SUCCESS
                                                         : CUDA_ERROR_NOT_INITIALIZED;
}
CUresult CheckReady() { return NeedContext(); }
CUcontext CurrentContext() { return PrimaryContext(); }
bool IsContext(CUcontext context) { return gpuloom::IsContext(context); }

CUresult ResolveStream(CUstream handle, NullStream null_means, StreamRef* stream) {
  wire::StreamId id;
  const CUresult result = FindStream(
      handle,
      null_means == NullStream::kPerThread ? DefaultStream::kPerThread : DefaultStream::kLegacy,
      &id);
  if (result == CUDA_SUCCESS) *stream = RefOf(id);
  return result;
}

CUresult DescribeKernel(const void* handle, KernelLayout* layout) {
  Kernel* kernel = FindKernel(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = RefreshKernel(kernel); result != CUDA_SUCCESS) return result;
  *layout = LayoutOf(*kernel);
  return CUDA_SUCCESS;
}

CUresult CheckKernelShape(const KernelParams& params) {
  const Kernel* kernel = FindKernel(params.handle());
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : CheckLaunchShape(params, *kernel);
}

bool IsEvent(CUevent handle) { return FindEvent(handle) != nullptr; }

bool IsDeviceReachable(CUdeviceptr address, uint64_t size_bytes) {
  KnownMemory found;
  return FindMemory(address, size_bytes, &found);
}

}  // namespace graph
}  // namespace gpuloom
