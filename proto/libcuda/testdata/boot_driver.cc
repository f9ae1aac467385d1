// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 with just what a copy of cudart asks for until its first allocation, on this
// folder's tables. Shows that NVIDIA's own runtime, static and shared, accepts them.
#include <cstdlib>
#include <cstring>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/proc_address.h"
#include "proto/libcuda/runtime_tables.h"

namespace {

// The device and its memory are made up; only what cudart compares between its questions must
// agree: the UUID and the PCI bus, which the handshake hashes and the attributes report.
constexpr int kVersion = 13000;
constexpr int kPciBus = 7;
constexpr size_t kMemoryBytes = size_t{1} << 30;
constexpr char kUuid[] = "gpuloom-boot-gpu";

char primary_context;
thread_local CUcontext current;

CUcontext Primary() { return reinterpret_cast<CUcontext>(&primary_context); }

// One context, made up as well; modules are not loaded before the first allocation.
const gpuloom::RuntimeHooks kHooks = {
    .current_context =
        [](CUcontext* context) {
          *context = current;
          return CUDA_SUCCESS;
        },
    .primary_context =
        [](CUdevice, CUcontext* context) {
          *context = Primary();
          return CUDA_SUCCESS;
        },
    .context_id =
        [](CUcontext, uint64_t* id) {
          *id = 1;
          return CUDA_SUCCESS;
        },
    .stream_id = [](CUstream, unsigned long long*) { return CUDA_ERROR_INVALID_HANDLE; },
    .stream_id_ptsz = [](CUstream, unsigned long long*) { return CUDA_ERROR_INVALID_HANDLE; },
    .load_module = [](CUmodule*, const void*) { return CUDA_ERROR_INVALID_IMAGE; },
    .function_count = [](unsigned*, CUmodule) { return CUDA_ERROR_INVALID_HANDLE; },
    .list_functions = [](CUfunction*, unsigned, CUmodule) { return CUDA_ERROR_INVALID_HANDLE; },
    .driver_version = [] { return kVersion; },
    .device_count = [] { return 1; },
    .device_identity =
        [](int, gpuloom::RuntimeDevice* device) {
          *device = {};
          std::memcpy(device->uuid, kUuid, sizeof(device->uuid));
          device->pci_bus = kPciBus;
        },
    .handshake_allowed = [] { return std::getenv("GPULOOM_BOOT_REFUSE_HANDSHAKE") == nullptr; },
    .log = [](const char*) {},
};

CUresult Uuid(CUuuid* uuid) {
  std::memcpy(uuid, kUuid, sizeof(*uuid));
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) {
  *version = kVersion;
  return CUDA_SUCCESS;
}
CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags) {
  return gpuloom::AnswerGetProcAddress(name, function, version, flags, nullptr);
}
CUresult cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  return gpuloom::AnswerGetProcAddress(name, function, version, flags, status);
}
CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  return gpuloom::AnswerGetExportTable(kHooks, table, id);
}
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::strncpy(name, "boot", static_cast<size_t>(size));
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = kMemoryBytes;
  return CUDA_SUCCESS;
}
// The rest only has to be plausible.
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = kPciBus;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      *value = 0;
      break;
    default:
      *value = 1;
  }
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice) { return Uuid(uuid); }
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice) { return Uuid(uuid); }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = Primary();
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current;
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t) {
  // Never used.
  *pointer = 0x10000000;
  return CUDA_SUCCESS;
}

}  // extern "C"
