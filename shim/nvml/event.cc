// SPDX-License-Identifier: Apache-2.0
// Events (a device's errors, changes of its clocks) concern the whole GPU, so a tenant receives none. Event sets can be
// made and waited for all the same, because tools do so whatever they show.
#include <poll.h>

#include "shim/nvml/node.h"

namespace {

using namespace gpuloom::nvml;  // this file only defines NVML's C functions

// Every set is this one: nothing is ever in it.
constexpr char kEmptySet = 0;
using EventSet = const char*;

int WaitForNone(EventSet set, const void* event, unsigned timeout_ms) {
  if (!node.initialized()) return kUninitialized;
  if (set != &kEmptySet || event == nullptr) return kInvalidArgument;
  constexpr unsigned kLongestMs = 1u << 30;
  poll(nullptr, 0, static_cast<int>(timeout_ms < kLongestMs ? timeout_ms : kLongestMs));
  return kTimeout;
}

}  // namespace

NVML_EXPORT int nvmlEventSetCreate(EventSet* set) {
  if (!node.initialized()) return kUninitialized;
  if (set == nullptr) return kInvalidArgument;
  *set = &kEmptySet;
  return kSuccess;
}
NVML_EXPORT int nvmlEventSetFree(EventSet set) {
  if (!node.initialized()) return kUninitialized;
  return set == &kEmptySet ? kSuccess : kInvalidArgument;
}
NVML_EXPORT int nvmlEventSetWait(EventSet set, void* event, unsigned timeout_ms) {
  return WaitForNone(set, event, timeout_ms);
}
NVML_EXPORT int nvmlEventSetWait_v2(EventSet set, void* event, unsigned timeout_ms) {
  return WaitForNone(set, event, timeout_ms);
}

NVML_EXPORT int nvmlDeviceGetSupportedEventTypes(DeviceHandle device, unsigned long long* types) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (types == nullptr) return kInvalidArgument;
  *types = 0;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceRegisterEvents(DeviceHandle device, unsigned long long types,
                                         EventSet set) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (set != &kEmptySet) return kInvalidArgument;
  return types == 0 ? kSuccess : kNotSupported;
}
