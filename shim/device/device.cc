// SPDX-License-Identifier: Apache-2.0
// The device as the program sees it: the snapshot that came with the session. No message is sent.
#include <stdio.h>
#include <string.h>

#include <climits>

#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

// For functions that cannot fail for a single attribute.
int32_t AttributeOr(CUdevice_attribute attribute, int32_t otherwise) {
  const int32_t value = session.device().attributes[attribute];
  return value == wire::kNoAttribute ? otherwise : value;
}

// Copies text as CUDA does: cut to the room there is, always terminated.
CUresult CopyText(char* out, int out_bytes, const char* text) {
  if (out == nullptr || out_bytes <= 0) return CUDA_ERROR_INVALID_VALUE;
  snprintf(out, static_cast<size_t>(out_bytes), "%s", text);
  return CUDA_SUCCESS;
}

CUresult CopyUuid(CUuuid* uuid, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  static_assert(sizeof(uuid->bytes) == sizeof(session.device().uuid));
  memcpy(uuid->bytes, session.device().uuid, sizeof(uuid->bytes));
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

// One, also when the session is lost: see NeedDevice.
CUresult cuDeviceGetCount(int* count) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  CUDA_RETURN_IF_ERROR(NeedDevice(ordinal));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  if (value == nullptr || attribute < 0 ||
      static_cast<uint32_t>(attribute) >= wire::kDeviceAttributes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int32_t known = session.device().attributes[attribute];
  // The node's driver does not have it, and would answer the same.
  if (known == wire::kNoAttribute) return CUDA_ERROR_INVALID_VALUE;
  *value = known;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int name_bytes, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  return CopyText(name, name_bytes, session.device().name);
}

CUresult cuDeviceGetPCIBusId(char* id, int id_bytes, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  // Unlike a name, it is never cut.
  const char* const text = session.device().pci_bus_id;
  if (id_bytes > 0 && static_cast<size_t>(id_bytes) <= strlen(text)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CopyText(id, id_bytes, text);
}

// "[domain:]bus:device[.function]", in hexadecimal.
CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (device == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, slot = 0;
  // A function behind a dot is not looked at: a GPU has one.
  if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (sscanf(id, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  const wire::DeviceSnapshot& ours = session.device();
  if (domain != static_cast<unsigned>(ours.pci_domain) ||
      bus != static_cast<unsigned>(ours.pci_bus) ||
      slot != static_cast<unsigned>(ours.pci_device)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *device = kOnlyDevice;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return CopyUuid(uuid, device); }
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) { return CopyUuid(uuid, device); }

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The allocation's quota, not the device's memory.
  *bytes = session.device().total_memory_bytes;
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(unsigned* bytes, CUdevice device) {
  size_t total = 0;
  CUDA_RETURN_IF_ERROR(cuDeviceTotalMem_v2(&total, device));
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = total > UINT_MAX ? UINT_MAX : static_cast<unsigned>(total);
  return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = AttributeOr(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
  *minor = AttributeOr(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const int32_t* all = session.device().attributes;
  properties->maxThreadsPerBlock = all[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  for (int i = 0; i < 3; ++i) {
    properties->maxThreadsDim[i] = all[CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i];
    properties->maxGridSize[i] = all[CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i];
  }
  properties->sharedMemPerBlock = all[CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK];
  properties->totalConstantMemory = all[CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY];
  properties->SIMDWidth = all[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
  properties->memPitch = all[CU_DEVICE_ATTRIBUTE_MAX_PITCH];
  properties->regsPerBlock = all[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK];
  properties->clockRate = AttributeOr(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 0);
  properties->textureAlign = all[CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT];
  return CUDA_SUCCESS;
}

// There is one device: it has no peers.
CUresult cuDeviceCanAccessPeer(int* can_access, CUdevice device, CUdevice peer) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  CUDA_RETURN_IF_ERROR(NeedDevice(peer));
  if (can_access == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can_access = 0;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute, CUdevice source,
                                 CUdevice destination) {
  CUDA_RETURN_IF_ERROR(NeedDevice(source));
  CUDA_RETURN_IF_ERROR(NeedDevice(destination));
  // CUDA requires two different devices, and there is only one.
  return value == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType type, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  // No kind of affinity is supported.
  (void)type;
  if (supported == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *supported = 0;
  return CUDA_SUCCESS;
}

}  // extern "C"
