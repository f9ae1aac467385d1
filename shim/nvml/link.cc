// SPDX-License-Identifier: Apache-2.0
// Ways from the device to others. A tenant has one device, so there are none.
#include <string.h>

#include "shim/nvml/node.h"

using namespace gpuloom::nvml;  // NVML's functions are written in our terms

NVML_EXPORT int nvmlDeviceGetP2PStatus(DeviceHandle a, DeviceHandle b, unsigned index,
                                       unsigned* status) {
  if (const Return result = CheckDevice(a); result != kSuccess) return result;
  if (const Return result = CheckDevice(b); result != kSuccess) return result;
  constexpr unsigned kIndexes = 5;  // read, write, NVLink, atomics, PCI
  constexpr unsigned kStatusNotSupported = 5;
  if (status == nullptr || index >= kIndexes) return kInvalidArgument;
  *status = kStatusNotSupported;  // as NVML says of a device and itself
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetTopologyCommonAncestor(DeviceHandle a, DeviceHandle b, int* level) {
  if (const Return result = CheckDevice(a); result != kSuccess) return result;
  if (const Return result = CheckDevice(b); result != kSuccess) return result;
  if (level == nullptr) return kInvalidArgument;
  *level = 0;  // on one board
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetTopologyNearestGpus(DeviceHandle device, int, unsigned* count,
                                                 DeviceHandle*) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (count == nullptr) return kInvalidArgument;
  *count = 0;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceOnSameBoard(DeviceHandle a, DeviceHandle b, int* is_same) {
  if (const Return result = CheckDevice(a); result != kSuccess) return result;
  if (const Return result = CheckDevice(b); result != kSuccess) return result;
  if (is_same == nullptr) return kInvalidArgument;
  *is_same = 1;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetNvLinkState(DeviceHandle device, unsigned link, int* is_active) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (is_active == nullptr || link >= kMaxNvLinks) return kInvalidArgument;
  *is_active = kDisabled;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetNvLinkCapability(DeviceHandle device, unsigned link, unsigned,
                                              unsigned* is_capable) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (is_capable == nullptr || link >= kMaxNvLinks) return kInvalidArgument;
  *is_capable = 0;
  return kSuccess;
}

// Each field says for itself that it is not known.
NVML_EXPORT int nvmlDeviceGetFieldValues(DeviceHandle device, int count, FieldValue* values) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (count <= 0 || values == nullptr) return kInvalidArgument;
  for (int i = 0; i < count; ++i) {
    values[i] = {values[i].field, values[i].scope, 0, 0, 0, kNotSupported, 0};
  }
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetGpuFabricInfo(DeviceHandle device, FabricInfo* info) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (info == nullptr) return kInvalidArgument;
  *info = {};
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetGpuFabricInfoV(DeviceHandle device, FabricInfoV* info) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (info == nullptr) return kInvalidArgument;
  const uint32_t version = info->version;
  size_t size = 0;
  if (version == VersionOf(kFabricInfoV2Bytes, 2)) size = kFabricInfoV2Bytes;
  if (version == VersionOf(sizeof(*info), 3)) size = sizeof(*info);
  if (size == 0) return kArgumentVersionMismatch;
  memset(info, 0, size);
  info->version = version;
  return kSuccess;
}
