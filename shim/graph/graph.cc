// SPDX-License-Identifier: Apache-2.0
// What the graph model asks of the shim.
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/library.h"
#include "shim/context/context.h"
#include "shim/event/event.h"
#include "shim/graph/capture.h"
#include "shim/memory/memory.h"
#include "shim/module/kernel.h"
#include "shim/module/library.h"
#include "shim/session/session.h"
#include "shim/stream/host_function.h"
#include "shim/stream/stream.h"

namespace gpuloom {

// Captures need to know whether a stream takes part in the legacy stream's barrier: while such a
// one captures, the legacy stream cannot be used.
graph::StreamRef RefOf(wire::StreamId stream) {
  const bool legacy = stream == wire::kLegacyStream;
  return {static_cast<uint32_t>(stream), legacy, !legacy && BlocksLegacy(stream)};
}

namespace {

// The model packs and shows parameters by this, without knowing the wire's tables. A CUkernel is
// shown only for kernels of libraries, which have one.
graph::KernelLayout LayoutOf(const Kernel& kernel) {
  return {kernel.described,
          kernel.param_count,
          kernel.param_bytes,
          kernel.params,
          [](const void* table, uint32_t index, uint32_t* offset_bytes, uint32_t* size_bytes) {
            const auto& param = static_cast<const wire::KernelParam*>(table)[index];
            *offset_bytes = param.offset_bytes;
            *size_bytes = param.size_bytes;
          },
          kernel.library->is_module ? nullptr
                                    : reinterpret_cast<CUkernel>(const_cast<Kernel*>(&kernel))};
}

}  // namespace

bool RecordsLaunch(wire::StreamId stream, const Kernel& kernel,
                   const CUDA_KERNEL_NODE_PARAMS_v3& launch, const CUlaunchAttribute* attributes,
                   uint32_t attribute_count, CUresult* result) {
  const bool taken = Records(stream, result, [&](graph::NodeParams* node) {
    CUresult made = graph::MakeKernelParams(launch, LayoutOf(kernel), node);
    for (uint32_t i = 0; made == CUDA_SUCCESS && i < attribute_count; ++i) {
      // What is no attribute of nodes is left out; events become nodes of their own, by the caller.
      if (!graph::IsNodeAttribute(attributes[i].id)) continue;
      made = graph::SetKernelAttribute(&node->kernel, attributes[i].id, attributes[i].value);
      if (made != CUDA_SUCCESS) graph::FreeParams(node);
    }
    return made;
  });
  // A launch that cannot be recorded ends the capture, as CUDA does; a graph without it would be
  // another program.
  if (taken && *result != CUDA_SUCCESS) graph::InvalidateCapture(RefOf(stream));
  return taken;
}

namespace graph {

CUresult CheckDevice(CUdevice device) { return NeedDevice(device); }

CUresult CheckInitialized() {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  return InsideHostFunction() ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}
CUresult CheckReady() { return NeedContext(); }
CUcontext CurrentContext() { return CurrentThread().current; }
bool IsContext(CUcontext context) { return gpuloom::IsContext(context); }

CUresult ResolveStream(CUstream handle, DefaultStream null_means, StreamRef* stream) {
  wire::StreamId id;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &id));
  *stream = RefOf(id);
  return CUDA_SUCCESS;
}

// A kernel that was only listed so far is described by the executor first.
CUresult DescribeKernel(const void* handle, KernelLayout* layout) {
  Kernel* kernel = FindKernel(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUDA_RETURN_IF_ERROR(RefreshKernel(kernel));
  *layout = LayoutOf(*kernel);
  return CUDA_SUCCESS;
}

CUresult CheckKernelShape(const KernelParams& params) {
  const Kernel* kernel = FindKernel(params.handle());
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : CheckLaunchShape(params, *kernel);
}

bool IsEvent(CUevent handle) { return FindEvent(handle) != nullptr; }

bool WasRecorded(CUevent handle) {
  const Event* event = FindEvent(handle);
  return event != nullptr && event->record.load(std::memory_order_acquire) != 0;
}

bool IsDeviceReachable(CUdeviceptr address, uint64_t size_bytes) {
  KnownMemory found;
  return FindMemory(address, size_bytes, &found);
}

}  // namespace graph
}  // namespace gpuloom
