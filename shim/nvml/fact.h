// SPDX-License-Identifier: Apache-2.0
// Answers that never change: the device's properties. Need an initialised library, unless they check for it themselves
// (CheckDevice); safe from any thread.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/wire/attribute.h"
#include "shim/nvml/node.h"

namespace gpuloom::nvml {

// Returns false if the device does not have the attribute.
[[nodiscard]] inline bool Attribute(CUdevice_attribute attribute, int* value) {
  *value = node.device().attributes[attribute];
  return *value != wire::kNoAttribute;
}

// Answers with a fact that holds for every tenant's device.
template <typename T>
[[nodiscard]] Return Fact(DeviceHandle device, T* out, T value) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (out == nullptr) return kInvalidArgument;
  *out = value;
  return kSuccess;
}

// The same if the node may not know it: `value` is 0 then.
[[nodiscard]] inline Return KnownFact(DeviceHandle device, unsigned* out, unsigned value) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (out == nullptr) return kInvalidArgument;
  if (value == 0) return kNotSupported;
  *out = value;
  return kSuccess;
}

}  // namespace gpuloom::nvml
