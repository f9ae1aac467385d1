// SPDX-License-Identifier: Apache-2.0
// How programs find functions: cuGetProcAddress, and the private tables that CUDA's own runtime
// asks for.
#include <cstring>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/played.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/proc_address.h"
#include "proto/libcuda/runtime_tables.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

// The handle exists before the context is retained, and cudart asks for it then.
CUresult PrimaryContext(CUdevice ordinal, CUcontext* context) {
  Device* device = FindDevice(ordinal);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *context = device->primary->handle();
  return CUDA_SUCCESS;
}

CUresult ContextId(CUcontext context, uint64_t* id) {
  unsigned long long number = 0;
  const CUresult result = cuCtxGetId(context, &number);
  if (result == CUDA_SUCCESS) *id = number;
  return result;
}

// The index comes from a loop over device_count, so there is a device.
void Identity(int index, gpuloom::RuntimeDevice* identity) {
  const Device* device = FindDevice(index);
  std::memcpy(identity->uuid, device->uuid.bytes, sizeof(identity->uuid));
  identity->pci_domain = 0;
  identity->pci_bus = PciBus(*device);
  identity->pci_device = 0;
}

// What the private tables need from a driver. Their layout, and the handshake, are in
// proto/libcuda/runtime_tables.h.
constexpr gpuloom::RuntimeHooks kHooks = {
    .current_context = cuCtxGetCurrent,
    .primary_context = PrimaryContext,
    .context_id = ContextId,
    .stream_id = cuStreamGetId,
    .stream_id_ptsz = cuStreamGetId_ptsz,
    .load_module = cuModuleLoadData,
    .function_count = cuModuleGetFunctionCount,
    .list_functions = cuModuleEnumerateFunctions,
    .driver_version = PlayedVersion,
    .device_count = DeviceCount,
    .device_identity = Identity,
    .handshake_allowed = [] { return CurrentSettings().handshake; },
    .log = [](const char* line) { PrintLine(line); },
};

}  // namespace

extern "C" {

CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  return gpuloom::AnswerGetExportTable(kHooks, table, id);
}

CUresult cuGetProcAddress_v2(const char* name, void** function, int cuda_version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  // Here a missing function is no error, whether or not the reason was requested.
  CUdriverProcAddressQueryResult unasked;
  return gpuloom::AnswerGetProcAddress(name, function, cuda_version, flags,
                                       status != nullptr ? status : &unasked, PlayedVersion());
}

CUresult cuGetProcAddress(const char* name, void** function, int cuda_version, cuuint64_t flags) {
  return gpuloom::AnswerGetProcAddress(name, function, cuda_version, flags, nullptr,
                                       PlayedVersion());
}

// Modules are compiled when they are loaded; programs are told that loading is lazy, since that is
// CUDA's default.
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

// A profiler can be started and stopped at any time; there is none.
CUresult cuProfilerStart() { return Ready(); }
CUresult cuProfilerStop() { return Ready(); }

}  // extern "C"
