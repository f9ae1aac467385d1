// SPDX-License-Identifier: Apache-2.0
// The functions of this driver that the graph model needs besides those for graphs.
#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/event.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "agent/softgpu/driver/library.h"
#include "agent/softgpu/driver/memory.h"
#include "agent/softgpu/driver/physical_memory.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "agent/softgpu/driver/virtual_memory.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/library.h"

namespace gpuloom::softgpu {

// The legacy stream itself is not "blocking": only the streams that it has barriers with are.
graph::StreamRef RefOf(const Stream& stream) {
  return {stream.id, stream.kind == Stream::Kind::kLegacy,
          stream.kind != Stream::Kind::kLegacy && stream.blocking()};
}

}  // namespace gpuloom::softgpu

namespace gpuloom::graph {

using namespace gpuloom::softgpu;  // this file joins the two

CUresult CheckDevice(CUdevice device) {
  CUDA_RETURN_IF_ERROR(Ready());
  return FindDevice(device) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult CheckInitialized() { return Ready(); }

CUresult CheckReady() {
  Context* context = nullptr;
  return RequireContext(context);
}

CUcontext CurrentContext() {
  Context* context = softgpu::CurrentContext();
  return context == nullptr ? nullptr : context->handle();
}

bool IsContext(CUcontext context) { return context == nullptr || FindContext(context) != nullptr; }

// As for any call that names a stream: the null handle and the special ones mean the current
// context's.
CUresult ResolveStream(CUstream handle, DefaultStream null_means, StreamRef* stream) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  const auto found = FindStream(*context, handle, null_means);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *stream = RefOf(*found);
  return CUDA_SUCCESS;
}

namespace {

// The handle by which the function's kernel is known, if it comes from a library; a node that was
// made from a function is reported with it, too.
CUkernel LibraryKernelOf(const FoundFunction& found) {
  const auto library = Registry<LoadedLibrary>::Instance().Find(found.module->library);
  if (library == nullptr) return nullptr;
  for (const auto& kernel : library->kernels) {
    if (kernel->kernel->name == found.function->kernel->name) {
      return reinterpret_cast<CUkernel>(kernel.get());
    }
  }
  return nullptr;
}

}  // namespace

CUresult DescribeKernel(const void* handle, KernelLayout* layout) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(FindFunction(*context, handle, found));
  const Kernel& kernel = *found.function->kernel;
  // The kernel stays while its module is loaded, which the program sees to.
  *layout = {true,
             static_cast<uint32_t>(kernel.params.size()),
             static_cast<uint32_t>(kernel.param_bytes),
             &kernel,
             [](const void* table, uint32_t index, uint32_t* offset_bytes, uint32_t* size_bytes) {
               const auto& param = static_cast<const Kernel*>(table)->params[index];
               *offset_bytes = static_cast<uint32_t>(param.offset_bytes);
               *size_bytes = static_cast<uint32_t>(param.size_bytes);
             },
             LibraryKernelOf(found)};
  return CUDA_SUCCESS;
}

// Judged as a launch would be; what would run it is thrown away.
CUresult CheckKernelShape(const KernelParams& params) {
  std::function<void()> unused;
  return PrepareKernel(params, unused);
}

bool IsEvent(CUevent handle) { return Registry<Event>::Instance().Find(handle) != nullptr; }

bool WasRecorded(CUevent handle) {
  const auto event = Registry<Event>::Instance().Find(handle);
  return event != nullptr && event->Latest() != nullptr;
}

bool IsDeviceReachable(CUdeviceptr address, uint64_t size_bytes) {
  return AddressTable::Instance().Covers(address, size_bytes, true);
}

CUresult AllocateForGraph(size_t size_bytes, CUdeviceptr* address) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  // It lives as long as graphs do, which belong to no context: with the device's primary one.
  uint64_t begin = 0;
  const CUresult allocated = Memory::Instance().Allocate(*context->device.primary,
                                                         RegionKind::kDevice, size_bytes, 0, begin);
  if (allocated == CUDA_SUCCESS) *address = begin;
  return allocated;
}

void FreeForGraph(CUdeviceptr address) {
  const auto region = AddressTable::Instance().FindRegion(address);
  if (!region || !region->on_device()) return;
  // A graph that was destroyed while it ran still uses it.
  SynchronizeDevice(*region->device);
  (void)Memory::Instance().Free(address, RegionKind::kDevice);
}

CUresult MapForGraph(CUdeviceptr address, uint64_t size_bytes, CUdevice ordinal,
                     const GraphPiece* pieces, size_t count) {
  Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  std::vector<std::shared_ptr<Physical>> physical;
  for (size_t i = 0; i < count; ++i) physical.push_back(FindHandle(pieces[i].handle));
  return VirtualMemory::Instance().MapWhole(address, size_bytes, *device, physical);
}

void UnmapForGraph(CUdeviceptr address, const GraphPiece*, size_t) {
  VirtualMemory::Instance().UnmapWhole(address);
}

CUresult FinishWork(CUdevice ordinal) {
  const Device* device = FindDevice(ordinal);
  if (device != nullptr) SynchronizeDevice(*device);
  return Healthy();
}

}  // namespace gpuloom::graph
