// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/device_description.h"

#include <dlfcn.h>

#include <iterator>
#include <memory>

namespace gpuloom::scheduler {
namespace {

// NVML's C interface, the part used here, as its public documentation gives it.
constexpr int kNvmlSuccess = 0;
using NvmlDevice = struct NvmlDeviceOpaque*;

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

class Nvml {
 public:
  explicit Nvml(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {}

  template <typename... Arguments>
  bool Call(const char* name, Arguments... arguments) const {
    if (library_ == nullptr) return false;
    const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_.get(), name));
    return function != nullptr && function(arguments...) == kNvmlSuccess;
  }

 private:
  std::unique_ptr<void, CloseLibrary> library_;
};

}  // namespace

wire::DeviceDescription DescribeDevice(const char* nvml_library, const std::string& uuid) {
  wire::DeviceDescription said{};
  const Nvml nvml(nvml_library);
  if (!nvml.Call("nvmlInit_v2")) return said;
  NvmlDevice device = nullptr;
  if (nvml.Call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &device)) {
    const auto ask = [&](const char* name, uint32_t* value) {
      unsigned number = 0;
      if (nvml.Call(name, device, &number)) *value = number;
    };
    ask("nvmlDeviceGetMaxPcieLinkGeneration", &said.pcie_generation);
    ask("nvmlDeviceGetGpuMaxPcieLinkGeneration", &said.pcie_device_generation);
    // Not so the generation: a device without work lowers it, so it tells of the load.
    ask("nvmlDeviceGetCurrPcieLinkWidth", &said.pcie_width);
    ask("nvmlDeviceGetMaxPcieLinkWidth", &said.pcie_max_width);
    ask("nvmlDeviceGetPowerManagementDefaultLimit", &said.power_default_mw);
    unsigned least = 0;
    unsigned most = 0;
    if (nvml.Call("nvmlDeviceGetPowerManagementLimitConstraints", device, &least, &most)) {
      said.power_min_mw = least;
      said.power_max_mw = most;
    }
    for (unsigned type = 0; type < std::size(said.max_clock_mhz); ++type) {
      unsigned mhz = 0;
      if (nvml.Call("nvmlDeviceGetMaxClockInfo", device, type, &mhz))
        said.max_clock_mhz[type] = mhz;
    }
    NvmlPciInfo pci{};
    if (nvml.Call("nvmlDeviceGetPciInfo_v3", device, &pci)) {
      said.pci_device_and_vendor = pci.pci_device_id;
      said.pci_subsystem = pci.pci_subsystem_id;
    }
  }
  (void)nvml.Call("nvmlShutdown");
  return said;
}

}  // namespace gpuloom::scheduler
