// SPDX-License-Identifier: Apache-2.0
// What CUDA's attributes do not describe: the link, the ranges of clocks and of the power limit.
// The node's NVML reported it when the scheduler started (proto/wire/query.h).
#include <stdlib.h>

#include "shim/nvml/fact.h"
#include "shim/nvml/sysfs.h"

using namespace gpuloom::nvml;  // NVML's functions are written in our terms

namespace {

const gpuloom::wire::DeviceDescription& Description() { return node.description(); }

// nvmlPcieLinkMaxSpeed_t counts generations from 1, each twice as fast but for the step to 3.
unsigned LaneMegabitsPerSecond(unsigned generation) {
  static constexpr unsigned kSpeeds[] = {0, 2500, 5000, 8000, 16000, 32000, 64000};
  constexpr unsigned kKnown = sizeof(kSpeeds) / sizeof(kSpeeds[0]);
  return generation < kKnown ? kSpeeds[generation] : 0;
}

}  // namespace

NVML_EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(DeviceHandle device, unsigned* generation) {
  return KnownFact(device, generation, Description().pcie_generation);
}
NVML_EXPORT int nvmlDeviceGetGpuMaxPcieLinkGeneration(DeviceHandle device, unsigned* generation) {
  return KnownFact(device, generation, Description().pcie_device_generation);
}
NVML_EXPORT int nvmlDeviceGetMaxPcieLinkWidth(DeviceHandle device, unsigned* width) {
  return KnownFact(device, width, Description().pcie_max_width);
}
// The value under load. An idle device lowers it, which would show whether other tenants have work.
NVML_EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(DeviceHandle device, unsigned* generation) {
  return KnownFact(device, generation, Description().pcie_generation);
}
NVML_EXPORT int nvmlDeviceGetCurrPcieLinkWidth(DeviceHandle device, unsigned* width) {
  return KnownFact(device, width, Description().pcie_width);
}
NVML_EXPORT int nvmlDeviceGetPcieSpeed(DeviceHandle device, unsigned* megabits_per_second) {
  return KnownFact(device, megabits_per_second,
                   LaneMegabitsPerSecond(Description().pcie_generation));
}
NVML_EXPORT int nvmlDeviceGetPcieLinkMaxSpeed(DeviceHandle device, unsigned* speed) {
  return KnownFact(device, speed, Description().pcie_generation);
}

// Current clocks would show what other tenants do. Without NVML on the node, CUDA knows two of the
// maxima.
NVML_EXPORT int nvmlDeviceGetMaxClockInfo(DeviceHandle device, unsigned type, unsigned* mhz) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  enum : unsigned { kGraphics, kMultiprocessor, kMemory, kVideo, kTypes };
  if (mhz == nullptr || type >= kTypes) return kInvalidArgument;
  if (Description().max_clock_mhz[type] != 0) {
    *mhz = Description().max_clock_mhz[type];
    return kSuccess;
  }
  int khz = 0;
  const CUdevice_attribute attribute =
      type == kMemory ? CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE : CU_DEVICE_ATTRIBUTE_CLOCK_RATE;
  if (type == kVideo || !Attribute(attribute, &khz) || khz <= 0) return kNotSupported;
  *mhz = static_cast<unsigned>(khz) / 1000;
  return kSuccess;
}

// The limit that is set, and the power that is drawn, are the operator's and the neighbours' business.
NVML_EXPORT int nvmlDeviceGetPowerManagementDefaultLimit(DeviceHandle device,
                                                         unsigned* milliwatts) {
  return KnownFact(device, milliwatts, Description().power_default_mw);
}
NVML_EXPORT int nvmlDeviceGetPowerManagementLimitConstraints(DeviceHandle device, unsigned* least,
                                                             unsigned* most) {
  if (most == nullptr) return kInvalidArgument;
  const Return result = KnownFact(device, least, Description().power_min_mw);
  return result != kSuccess ? result : KnownFact(device, most, Description().power_max_mw);
}

NVML_EXPORT int nvmlDeviceGetEccMode(DeviceHandle device, unsigned* now, unsigned* pending) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (now == nullptr || pending == nullptr) return kInvalidArgument;
  int enabled = 0;
  if (!Attribute(CU_DEVICE_ATTRIBUTE_ECC_ENABLED, &enabled)) return kNotSupported;
  *now = *pending = enabled != 0 ? kEnabled : kDisabled;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetNumaNodeId(DeviceHandle device, unsigned* numa_node) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (numa_node == nullptr) return kInvalidArgument;
  char text[32];
  if (!ReadSysfs("numa_node", text, sizeof(text)) || atoi(text) < 0) return kNotSupported;
  *numa_node = static_cast<unsigned>(atoi(text));
  return kSuccess;
}
