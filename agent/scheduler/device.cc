// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include <string_view>

#include "agent/node/gpu_uuid.h"
#include "agent/node/nvml_library.h"
#include "agent/scheduler/device_description.h"
#include "proto/cuda/driver.h"
#include "proto/cuda/driver_features.h"
#include "proto/cuda/driver_version.h"
#include "proto/cuda/return_if_error.h"
#include "proto/wire/attribute.h"

namespace gpuloom::scheduler {
namespace {

std::string ErrorText(const Driver& driver, CUresult result) {
  const char* name = nullptr;
  if (driver.cuGetErrorName != nullptr && driver.cuGetErrorName(result, &name) == CUDA_SUCCESS &&
      name != nullptr) {
    return name;
  }
  return "CUresult " + std::to_string(static_cast<int>(result));
}

// NVIDIA's library is a file named libcuda.so.580.95.05, whatever links point to it. A name with a
// single number does not give a driver version.
std::string DriverText(const Driver& driver) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(driver.cuInit), &info) == 0) return {};
  char path[PATH_MAX];
  if (realpath(info.dli_fname, path) == nullptr) return {};
  constexpr std::string_view kPrefix = "libcuda.so.";
  const std::string_view full(path);
  const std::string_view name = full.substr(full.rfind('/') + 1);
  if (name.substr(0, kPrefix.size()) != kPrefix) return {};
  const std::string_view text = name.substr(kPrefix.size());
  const bool is_version =
      text.find('.') != text.npos && text.find_first_not_of("0123456789.") == text.npos;
  return is_version ? std::string(text) : std::string();
}

// The driver's device. It calls cuInit and never makes a context: all that it uses works without
// one.
class DriverDevice : public Device {
 public:
  // All-or-nothing: false with a message.
  bool Open(const std::string& cuda_library, const std::string& index_or_uuid, std::string* error);

  uint32_t CreateMemory(uint64_t size_bytes, uint64_t* handle,
                        channel::UniqueFd* exported) override {
    CUmemGenericAllocationHandle memory;
    CUDA_RETURN_IF_ERROR(driver_.cuMemCreate(&memory, size_bytes, &properties_, 0));
    int fd = -1;
    const CUresult result = driver_.cuMemExportToShareableHandle(
        &fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    // Only the importer's descriptor gives the memory a purpose; without one it is released.
    if (result != CUDA_SUCCESS) {
      driver_.cuMemRelease(memory);
      return result;
    }
    *handle = memory;
    exported->Reset(fd);
    return CUDA_SUCCESS;
  }

  void ReleaseMemory(uint64_t handle) override { driver_.cuMemRelease(handle); }

 private:
  bool FindDevice(const std::string& index_or_uuid, CUdevice* device, std::string* error);
  bool ReadFacts(CUdevice device, std::string* error);

  Driver driver_;
  CUmemAllocationProp properties_{};
};

bool DriverDevice::Open(const std::string& cuda_library, const std::string& index_or_uuid,
                        std::string* error) {
  if (!Load(cuda_library.c_str(), &driver_, error)) return false;
  int version = 0;
  // The version first: an old library lacks functions, and "too old" says more than their names.
  if (driver_.cuDriverGetVersion != nullptr &&
      driver_.cuDriverGetVersion(&version) == CUDA_SUCCESS && version < kOldestDriverVersion) {
    *error = "cuda: the driver's CUDA version is " + CudaVersionText(version) +
             ", older than gpuloom works with: install driver 535 (CUDA " +
             CudaVersionText(kOldestDriverVersion) + ") or a newer one";
    return false;
  }
  const std::pair<const char*, bool> needed[] = {
      {"cuDeviceGetUuid_v2", driver_.cuDeviceGetUuid_v2 != nullptr},
      {"cuMemCreate", driver_.cuMemCreate != nullptr},
      {"cuMemRelease", driver_.cuMemRelease != nullptr},
      {"cuMemExportToShareableHandle", driver_.cuMemExportToShareableHandle != nullptr},
  };
  for (const auto& [name, present] : needed) {
    if (!present) {
      *error = "cuda: " + cuda_library + " has no " + name + ": the driver is too old";
      return false;
    }
  }
  const CUresult result = driver_.cuInit(0);
  if (result != CUDA_SUCCESS) {
    *error = "cuda: cuInit of " + cuda_library + " failed: " + ErrorText(driver_, result) +
             "; see whether nvidia-smi works on this machine";
    return false;
  }
  CUdevice device;
  if (!FindDevice(index_or_uuid, &device, error) || !ReadFacts(device, error)) return false;
  // What CUDA does not report. Its absence is no reason to fail.
  facts_.description = DescribeDevice(kNvmlLibrary, FormatUuid(facts_.uuid));
  properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties_.location.id = device;
  return true;
}

bool DriverDevice::FindDevice(const std::string& index_or_uuid, CUdevice* device,
                              std::string* error) {
  int count = 0;
  const CUresult result = driver_.cuDeviceGetCount(&count);
  if (result != CUDA_SUCCESS || count == 0) {
    *error = "cuda: no GPU found: " + (result == CUDA_SUCCESS ? std::string("device count is 0")
                                                              : ErrorText(driver_, result));
    return false;
  }
  char* end = nullptr;
  // A number is an index in the driver's order, which CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES in
  // this process's environment may change.
  const long index = strtol(index_or_uuid.c_str(), &end, 10);
  if (!index_or_uuid.empty() && *end == '\0') {
    if (index >= 0 && index < count && driver_.cuDeviceGet(device, static_cast<int>(index)) == 0) {
      return true;
    }
    *error = "cuda: no GPU " + index_or_uuid + ": this machine has " + std::to_string(count) +
             (count == 1 ? ", number 0" : ", numbered from 0");
    return false;
  }
  std::string known;
  for (int i = 0; i < count; ++i) {
    CUuuid uuid;
    if (driver_.cuDeviceGet(device, i) != CUDA_SUCCESS) continue;
    if (driver_.cuDeviceGetUuid_v2(&uuid, *device) != CUDA_SUCCESS) continue;
    uint8_t bytes[16];
    std::copy(uuid.bytes, uuid.bytes + 16, bytes);
    if (FormatUuid(bytes) == index_or_uuid) return true;
    known += " " + FormatUuid(bytes);
  }
  *error = "cuda: no GPU " + index_or_uuid + ": this machine has" + known;
  return false;
}

bool DriverDevice::ReadFacts(CUdevice device, std::string* error) {
  int version = 0;
  char name[256] = {};
  char pci_bus_id[16] = {};
  size_t total = 0;
  CUuuid uuid{};
  for (const auto& [what, result] : {
           std::pair{"cuDriverGetVersion", driver_.cuDriverGetVersion(&version)},
           std::pair{"cuDeviceGetName", driver_.cuDeviceGetName(name, sizeof(name) - 1, device)},
           std::pair{"cuDeviceGetUuid_v2", driver_.cuDeviceGetUuid_v2(&uuid, device)},
           std::pair{"cuDeviceTotalMem_v2", driver_.cuDeviceTotalMem_v2(&total, device)},
           std::pair{"cuDeviceGetPCIBusId",
                     driver_.cuDeviceGetPCIBusId(pci_bus_id, sizeof(pci_bus_id), device)},
       }) {
    if (result != CUDA_SUCCESS) {
      *error = std::string("cuda: ") + what + " failed: " + ErrorText(driver_, result);
      return false;
    }
  }
  facts_.driver_version = version;
  facts_.driver_text = DriverText(driver_);
  facts_.name = name;
  facts_.pci_bus_id = pci_bus_id;
  facts_.total_memory_bytes = total;
  std::copy(uuid.bytes, uuid.bytes + 16, facts_.uuid);
  // Attributes begin at 1. An attribute that the driver does not have differs from one that is 0.
  facts_.attributes[0] = wire::kNoAttribute;
  for (int i = 1; i < static_cast<int>(wire::kDeviceAttributes); ++i) {
    int value = 0;
    const auto attribute = static_cast<CUdevice_attribute>(i);
    const bool known = driver_.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS;
    facts_.attributes[i] = known ? value : wire::kNoAttribute;
  }
  return true;
}

}  // namespace

std::unique_ptr<Device> OpenDevice(const std::string& cuda_library,
                                   const std::string& index_or_uuid, std::string* error) {
  auto device = std::make_unique<DriverDevice>();
  if (!device->Open(cuda_library, index_or_uuid, error)) return nullptr;
  return device;
}

}  // namespace gpuloom::scheduler
