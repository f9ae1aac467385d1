// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/nvml.h"

#include <dlfcn.h>

#include <fstream>
#include <memory>

#include "absl/strings/ascii.h"
#include "agent/cat.h"

namespace gpuloom {
namespace {

// NVML's C interface, the part used here. Sizes and names are those of its public documentation;
// the functions with a _v2 suffix are what the unsuffixed names have meant since CUDA 4.
using NvmlReturn = int;
constexpr NvmlReturn kNvmlSuccess = 0;
using NvmlDevice = struct NvmlDeviceOpaque*;

struct NvmlMemory {
  unsigned long long total;  // NOLINT(google-runtime-int): NVML's own type
  unsigned long long free;   // NOLINT(google-runtime-int)
  unsigned long long used;   // NOLINT(google-runtime-int)
};

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

constexpr unsigned kUuidBufferBytes = 96;
constexpr unsigned kNameBufferBytes = 96;

struct Nvml {
  NvmlReturn (*init)();
  NvmlReturn (*shutdown)();
  const char* (*error_string)(NvmlReturn);
  NvmlReturn (*count)(unsigned*);
  NvmlReturn (*handle_by_index)(unsigned, NvmlDevice*);
  NvmlReturn (*uuid)(NvmlDevice, char*, unsigned);
  NvmlReturn (*name)(NvmlDevice, char*, unsigned);
  NvmlReturn (*memory)(NvmlDevice, NvmlMemory*);
  NvmlReturn (*pci)(NvmlDevice, NvmlPciInfo*);
  NvmlReturn (*mig_mode)(NvmlDevice, unsigned*, unsigned*);  // absent before R450
};

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};

template <typename F>
bool Find(void* library, const char* name, F** function) {
  *function = reinterpret_cast<F*>(dlsym(library, name));
  return *function != nullptr;
}

int NumaNodeOf(const char* bus_id) {
  // NVML writes the domain with eight digits, sysfs with four, both in lower case there.
  std::string id = absl::AsciiStrToLower(bus_id);
  if (id.size() > 12) id.erase(0, id.size() - 12);
  std::ifstream file("/sys/bus/pci/devices/" + id + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

absl::StatusOr<Gpu> Describe(const Nvml& nvml, unsigned index) {
  NvmlDevice device = nullptr;
  char uuid[kUuidBufferBytes] = {};
  char name[kNameBufferBytes] = {};
  NvmlMemory memory = {};
  const auto failed = [&](const char* what, NvmlReturn code) {
    return absl::UnavailableError(Cat("nvml: GPU ", index, ": ", what, ": ",
                                      nvml.error_string(code), "; see dmesg for Xid lines"));
  };
  if (const NvmlReturn code = nvml.handle_by_index(index, &device); code != kNvmlSuccess) {
    return failed("handle", code);
  }
  if (const NvmlReturn code = nvml.uuid(device, uuid, sizeof(uuid)); code != kNvmlSuccess) {
    return failed("uuid", code);
  }
  if (const NvmlReturn code = nvml.name(device, name, sizeof(name)); code != kNvmlSuccess) {
    return failed("name", code);
  }
  if (const NvmlReturn code = nvml.memory(device, &memory); code != kNvmlSuccess) {
    return failed("memory", code);
  }
  unsigned mig_now = 0, mig_pending = 0;
  if (nvml.mig_mode != nullptr && nvml.mig_mode(device, &mig_now, &mig_pending) == kNvmlSuccess &&
      mig_now != 0) {
    return absl::FailedPreconditionError(
        Cat("nvml: GPU ", uuid, " is in MIG mode, which gpuloom does not share: nvidia-smi -i ",
            index, " -mig 0"));
  }
  Gpu gpu;
  gpu.uuid = uuid;
  gpu.name = name;
  gpu.index = static_cast<int>(index);
  gpu.total_bytes = memory.total;
  NvmlPciInfo pci = {};
  if (nvml.pci(device, &pci) == kNvmlSuccess) {
    pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
    gpu.numa_node = NumaNodeOf(pci.bus_id);
  }
  return gpu;
}

}  // namespace

absl::StatusOr<std::vector<Gpu>> ListGpusFromNvml(const std::string& library) {
  const std::unique_ptr<void, CloseLibrary> handle(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (handle == nullptr) {
    return absl::UnavailableError(
        Cat("nvml: ", dlerror(),
            ": is NVIDIA's driver installed, and, in a pod, does its runtime class bring it? A pod "
            "that is older than the driver must be deleted"));
  }
  Nvml nvml = {};
  if (!Find(handle.get(), "nvmlInit_v2", &nvml.init) ||
      !Find(handle.get(), "nvmlShutdown", &nvml.shutdown) ||
      !Find(handle.get(), "nvmlErrorString", &nvml.error_string) ||
      !Find(handle.get(), "nvmlDeviceGetCount_v2", &nvml.count) ||
      !Find(handle.get(), "nvmlDeviceGetHandleByIndex_v2", &nvml.handle_by_index) ||
      !Find(handle.get(), "nvmlDeviceGetUUID", &nvml.uuid) ||
      !Find(handle.get(), "nvmlDeviceGetName", &nvml.name) ||
      !Find(handle.get(), "nvmlDeviceGetMemoryInfo", &nvml.memory) ||
      !Find(handle.get(), "nvmlDeviceGetPciInfo_v3", &nvml.pci)) {
    return absl::UnavailableError(Cat("nvml: ", library, " is too old: ", dlerror()));
  }
  (void)Find(handle.get(), "nvmlDeviceGetMigMode", &nvml.mig_mode);
  if (const NvmlReturn code = nvml.init(); code != kNvmlSuccess) {
    return absl::UnavailableError(
        Cat("nvml: init: ", nvml.error_string(code), "; does nvidia-smi work on the node?"));
  }
  std::vector<Gpu> gpus;
  absl::Status status;
  unsigned count = 0;
  if (const NvmlReturn code = nvml.count(&count); code != kNvmlSuccess) {
    status = absl::UnavailableError(Cat("nvml: count: ", nvml.error_string(code)));
  }
  for (unsigned index = 0; index < count && status.ok(); ++index) {
    absl::StatusOr<Gpu> gpu = Describe(nvml, index);
    if (gpu.ok()) {
      gpus.push_back(*std::move(gpu));
    } else {
      status = gpu.status();
    }
  }
  nvml.shutdown();
  if (!status.ok()) return status;
  return gpus;
}

}  // namespace gpuloom
