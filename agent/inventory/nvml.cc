// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/nvml.h"

#include <fstream>

#include "absl/strings/ascii.h"
#include "agent/cat.h"

namespace gpuloom {
namespace {

// With NVML's own types.
struct NvmlMemory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

constexpr unsigned kUuidBufferBytes = 96;
constexpr unsigned kNameBufferBytes = 96;

int NumaNodeOf(const char* bus_id) {
  // NVML writes the domain with eight digits, sysfs with four, both in lower case there.
  std::string id = absl::AsciiStrToLower(bus_id);
  if (id.size() > 12) id.erase(0, id.size() - 12);
  std::ifstream file("/sys/bus/pci/devices/" + id + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

// Fills in what can be asked. Returns why the GPU cannot be used; empty: it can.
std::string Describe(const NvmlLibrary& nvml, unsigned index, Gpu* gpu) {
  gpu->index = static_cast<int>(index);
  NvmlDevice device = nullptr;
  char uuid[kUuidBufferBytes] = {};
  char name[kNameBufferBytes] = {};
  NvmlMemory memory = {};
  const auto failed = [&](const char* what, int code) {
    return Cat("nvml: GPU ", index, ": ", what, ": ", nvml.TextOf(code),
               "; see dmesg for Xid lines");
  };
  if (const int code = nvml.Call("nvmlDeviceGetHandleByIndex_v2", index, &device);
      code != kNvmlSuccess) {
    return failed("handle", code);
  }
  if (const int code = nvml.Call("nvmlDeviceGetUUID", device, uuid, kUuidBufferBytes);
      code != kNvmlSuccess) {
    return failed("uuid", code);
  }
  gpu->uuid = uuid;
  if (const int code = nvml.Call("nvmlDeviceGetName", device, name, kNameBufferBytes);
      code != kNvmlSuccess) {
    return failed("name", code);
  }
  gpu->name = name;
  if (const int code = nvml.Call("nvmlDeviceGetMemoryInfo", device, &memory);
      code != kNvmlSuccess) {
    return failed("memory", code);
  }
  gpu->total_bytes = memory.total;
  NvmlPciInfo pci = {};
  if (nvml.Call("nvmlDeviceGetPciInfo_v3", device, &pci) == kNvmlSuccess) {
    pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
    gpu->numa_node = NumaNodeOf(pci.bus_id);
  }
  unsigned mig_now = 0, mig_pending = 0;
  // Drivers before R450 do not have it, nor MIG.
  if (nvml.Call("nvmlDeviceGetMigMode", device, &mig_now, &mig_pending) == kNvmlSuccess &&
      mig_now != 0) {
    return Cat("nvml: GPU ", uuid, " is in MIG mode, which gpuloom does not share: nvidia-smi -i ",
               index, " -mig 0");
  }
  return "";
}

}  // namespace

absl::StatusOr<GpuList> ListGpusFromNvml(const std::string& library) {
  const NvmlLibrary nvml(library);
  if (!nvml.error().empty()) return absl::UnavailableError(Cat("nvml: ", nvml.error()));
  unsigned count = 0;
  if (const int code = nvml.Call("nvmlDeviceGetCount_v2", &count); code != kNvmlSuccess) {
    return absl::UnavailableError(Cat("nvml: count: ", nvml.TextOf(code)));
  }
  GpuList list;
  for (unsigned index = 0; index < count; ++index) {
    Gpu gpu;
    std::string trouble = Describe(nvml, index, &gpu);
    if (trouble.empty()) {
      list.usable.push_back(std::move(gpu));
    } else {
      list.unusable.push_back({std::move(gpu), std::move(trouble)});
    }
  }
  return list;
}

}  // namespace gpuloom
