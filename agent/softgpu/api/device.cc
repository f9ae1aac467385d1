// SPDX-License-Identifier: Apache-2.0
// cuInit, cuDevice*: what programs ask about devices. Every answer is constant after cuInit.
#include "agent/softgpu/driver/device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "agent/softgpu/driver/played.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

constexpr char kName[] = "gpuloom softgpu (software)";

// Initialised, and a device of that number.
CUresult Require(CUdevice ordinal, Device*& device) {
  CUDA_RETURN_IF_ERROR(Ready());
  device = FindDevice(ordinal);
  return device == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

std::string PciAddress(const Device& device) {
  char text[16];
  std::snprintf(text, sizeof(text), "%04X:%02X:%02X.0", 0u, static_cast<unsigned>(PciBus(device)),
                0u);
  return text;
}

// Copies as much as fits, always terminated. `capacity` is at least 1.
void CopyText(char* to, int capacity, const std::string& text) {
  const size_t length = std::min(text.size(), static_cast<size_t>(capacity - 1));
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned flags) { return Start(flags); }

// Needs no cuInit: programs ask for the version first.
CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = PlayedVersion();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = DeviceCount();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  Device* found = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, found));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int capacity, CUdevice ordinal) {
  Device* device = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, device));
  if (name == nullptr || capacity <= 0) return CUDA_ERROR_INVALID_VALUE;
  CopyText(name, capacity, kName);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice ordinal) {
  Device* device = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, device));
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *uuid = device->uuid;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice ordinal) {
  return cuDeviceGetUuid_v2(uuid, ordinal);
}

CUresult cuDeviceTotalMem_v2(size_t* size_bytes, CUdevice ordinal) {
  Device* device = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, device));
  if (size_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *size_bytes = device->memory_bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned* size_bytes, CUdevice ordinal) {
  size_t full = 0;
  if (size_bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // For programs from the time when a device's memory fitted into 32 bits: cut off, not wrapped.
  const CUresult result = cuDeviceTotalMem_v2(&full, ordinal);
  if (result == CUDA_SUCCESS)
    *size_bytes = static_cast<unsigned>(std::min<size_t>(full, 0xffffffffu));
  return result;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice ordinal) {
  Device* device = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return DeviceAttribute(*device, attribute, *value);
}

CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice ordinal) {
  CUDA_RETURN_IF_ERROR(
      cuDeviceGetAttribute(major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ordinal));
  return cuDeviceGetAttribute(minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, ordinal);
}

CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice ordinal) {
  Device* device = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, device));
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Everything in this structure is also an attribute, so the numbers cannot differ.
  const auto get = [&](CUdevice_attribute attribute) {
    int value = 0;
    static_cast<void>(DeviceAttribute(*device, attribute, value));
    return value;
  };
  properties->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  properties->maxThreadsDim[0] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  properties->maxThreadsDim[1] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  properties->maxThreadsDim[2] = get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  properties->maxGridSize[0] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  properties->maxGridSize[1] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  properties->maxGridSize[2] = get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  properties->sharedMemPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  properties->totalConstantMemory = get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  properties->SIMDWidth = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  properties->memPitch = get(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  properties->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  properties->clockRate = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  properties->textureAlign = get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* text, int capacity, CUdevice ordinal) {
  Device* device = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, device));
  const std::string address = PciAddress(*device);
  // Unlike a name, it is never cut.
  if (text == nullptr || capacity <= 0 || static_cast<size_t>(capacity) <= address.size()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CopyText(text, capacity, address);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  CUDA_RETURN_IF_ERROR(Ready());
  if (device == nullptr || text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // "domain:bus:device.function", "domain:bus:device" or "bus:device.function", in hexadecimal.
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  // Without a domain it is 0, as everywhere here. sscanf stops at what follows, so a function
  // number does no harm.
  if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (std::sscanf(text, "%x:%x", &bus, &slot) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  for (int ordinal = 0; ordinal < DeviceCount(); ++ordinal) {
    if (domain == 0 && slot == 0 && bus == static_cast<unsigned>(PciBus(*FindDevice(ordinal)))) {
      *device = ordinal;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice ordinal, CUdevice peer) {
  Device* device = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, device));
  CUDA_RETURN_IF_ERROR(Require(peer, device));
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *can = ordinal != peer ? 1 : 0;  // all devices are this process's memory
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice ordinal,
                                 CUdevice peer) {
  Device* device = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, device));
  CUDA_RETURN_IF_ERROR(Require(peer, device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (ordinal == peer) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      // Whatever a device does in another's memory is the processor's own access.
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      *value = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Any kind may be requested; none is available.
CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType, CUdevice ordinal) {
  Device* device = nullptr;
  CUDA_RETURN_IF_ERROR(Require(ordinal, device));
  if (supported == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *supported = 0;
  return CUDA_SUCCESS;
}

}  // extern "C"
