// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/device_description.h"

#include <iterator>

#include "agent/node/nvml_library.h"

namespace gpuloom::scheduler {

wire::DeviceDescription DescribeDevice(const char* nvml_library, const std::string& uuid) {
  // All zeros means "not reported"; each question that fails leaves its field so.
  wire::DeviceDescription said{};
  const NvmlLibrary nvml(nvml_library);
  const auto call = [&](const char* function, auto... arguments) {
    return nvml.Call(function, arguments...) == kNvmlSuccess;
  };
  NvmlDevice device = nullptr;
  if (call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &device)) {
    const auto ask = [&](const char* name, uint32_t* value) {
      unsigned number = 0;
      if (call(name, device, &number)) *value = number;
    };
    ask("nvmlDeviceGetMaxPcieLinkGeneration", &said.pcie_generation);
    ask("nvmlDeviceGetGpuMaxPcieLinkGeneration", &said.pcie_device_generation);
    // The width in use, but not the generation in use: an idle device lowers that, so it reflects
    // the load.
    ask("nvmlDeviceGetCurrPcieLinkWidth", &said.pcie_width);
    ask("nvmlDeviceGetMaxPcieLinkWidth", &said.pcie_max_width);
    ask("nvmlDeviceGetPowerManagementDefaultLimit", &said.power_default_mw);
    unsigned least = 0;
    unsigned most = 0;
    if (call("nvmlDeviceGetPowerManagementLimitConstraints", device, &least, &most)) {
      said.power_min_mw = least;
      said.power_max_mw = most;
    }
    for (unsigned type = 0; type < std::size(said.max_clock_mhz); ++type) {
      unsigned mhz = 0;
      if (call("nvmlDeviceGetMaxClockInfo", device, type, &mhz)) said.max_clock_mhz[type] = mhz;
    }
    NvmlPciInfo pci{};
    if (call("nvmlDeviceGetPciInfo_v3", device, &pci)) {
      said.pci_device_and_vendor = pci.pci_device_id;
      said.pci_subsystem = pci.pci_subsystem_id;
    }
  }
  return said;
}

}  // namespace gpuloom::scheduler
