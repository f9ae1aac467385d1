// SPDX-License-Identifier: Apache-2.0
// The one device: how it is found, what it is.
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/cuda/cuda_all.h"
#include "shim/nvml/fact.h"
#include "shim/nvml/node.h"
#include "shim/nvml/sysfs.h"
#include "shim/nvml/text.h"
#include "shim/session/door.h"

namespace gpuloom::nvml {
namespace {

Return GiveDevice(DeviceHandle* device) {
  *device = OnlyDevice();
  return kSuccess;
}

// nvmlBrandType_t, by the product's name.
unsigned Brand(const char* name) {
  static constexpr struct {
    const char* prefix;
    unsigned brand;
  } kBrands[] = {
      {"Tesla", 2},        {"Quadro", 1},         {"GeForce", 5},     {"TITAN", 6},
      {"NVIDIA TITAN", 6}, {"NVIDIA GeForce", 5}, {"NVIDIA RTX", 12}, {"NVIDIA Quadro", 1},
      {"NVIDIA Tesla", 2}, {"NVIDIA ", 14},
  };
  for (const auto& one : kBrands) {
    if (strncmp(name, one.prefix, strlen(one.prefix)) == 0) return one.brand;
  }
  return 0;  // unknown
}

// nvmlDeviceArchitecture_t.
unsigned Architecture(int major, int minor) {
  if (major == 5) return 3;                   // Maxwell
  if (major == 6) return 4;                   // Pascal
  if (major == 7) return minor < 5 ? 5 : 6;   // Volta, Turing
  if (major == 8) return minor == 9 ? 8 : 7;  // Ada, Ampere
  if (major == 9) return 9;                   // Hopper
  if (major == 10 || major == 12) return 10;  // Blackwell
  return 0xffffffff;                          // unknown
}

// FP32 lanes of a multiprocessor, as the CUDA programming guide lists them; 0 where it does not.
unsigned CoresPerMultiprocessor(int major, int minor) {
  if (major == 5) return 128;
  if (major == 6) return minor == 0 ? 64 : 128;
  if (major == 7) return 64;
  if (major == 8) return minor == 0 ? 64 : 128;
  if (major == 9 || major == 10 || major == 12) return 128;
  return 0;
}

bool ComputeCapability(int* major, int* minor) {
  return Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major) &&
         Attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor);
}

PciInfo DescribePci() {
  const wire::DeviceSnapshot& device = node.device();
  const auto domain = static_cast<unsigned>(device.pci_domain);
  const auto bus = static_cast<unsigned>(device.pci_bus);
  const auto slot = static_cast<unsigned>(device.pci_device);
  PciInfo info = {};
  snprintf(info.place.bus_id, sizeof(info.place.bus_id), "%04X:%02X:%02X.0", domain & 0xffff,
           bus & 0xff, slot & 0xff);
  snprintf(info.bus_id, sizeof(info.bus_id), "%08X:%02X:%02X.0", domain, bus & 0xff, slot & 0xff);
  info.place.domain = domain;
  info.place.bus = bus;
  info.place.device = slot;
  info.place.device_and_vendor = node.description().pci_device_and_vendor;
  info.subsystem = node.description().pci_subsystem;
  // If the node's NVML did not report it, the container's sysfs may.
  unsigned vendor = 0, model = 0;
  if (info.place.device_and_vendor != 0) return info;
  if (ReadSysfsHex("vendor", &vendor) && ReadSysfsHex("device", &model)) {
    info.place.device_and_vendor = model << 16 | vendor;
  }
  if (ReadSysfsHex("subsystem_vendor", &vendor) && ReadSysfsHex("subsystem_device", &model)) {
    info.subsystem = model << 16 | vendor;
  }
  return info;
}

}  // namespace
}  // namespace gpuloom::nvml

using namespace gpuloom;        // NVML's functions are written in our terms
using namespace gpuloom::nvml;  // the same

NVML_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  if (!node.initialized()) return kUninitialized;
  if (count == nullptr) return kInvalidArgument;
  *count = 1;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

NVML_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, DeviceHandle* device) {
  if (!node.initialized()) return kUninitialized;
  if (device == nullptr || index != 0) return kInvalidArgument;
  return GiveDevice(device);
}
NVML_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, DeviceHandle* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

NVML_EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, DeviceHandle* device) {
  if (!node.initialized()) return kUninitialized;
  if (device == nullptr || uuid == nullptr) return kInvalidArgument;
  char ours[kUuidTextBytes];
  WriteUuid(node.device().uuid, ours);
  return strcasecmp(uuid, ours) == 0 ? GiveDevice(device) : kNotFound;
}

// "[domain:]bus:device[.function]", in hexadecimal.
NVML_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* id, DeviceHandle* device) {
  if (!node.initialized()) return kUninitialized;
  if (device == nullptr || id == nullptr) return kInvalidArgument;
  unsigned domain = 0, bus = 0, slot = 0;
  if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
    domain = 0;
    if (sscanf(id, "%x:%x", &bus, &slot) != 2) return kInvalidArgument;
  }
  const wire::DeviceSnapshot& ours = node.device();
  const bool is_ours = domain == static_cast<unsigned>(ours.pci_domain) &&
                       bus == static_cast<unsigned>(ours.pci_bus) &&
                       slot == static_cast<unsigned>(ours.pci_device);
  return is_ours ? GiveDevice(device) : kNotFound;
}
NVML_EXPORT int nvmlDeviceGetHandleByPciBusId(const char* id, DeviceHandle* device) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

NVML_EXPORT int nvmlDeviceGetName(DeviceHandle device, char* text, unsigned text_bytes) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  return CopyText(text, text_bytes, node.device().name);
}

NVML_EXPORT int nvmlDeviceGetUUID(DeviceHandle device, char* text, unsigned text_bytes) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  char uuid[kUuidTextBytes];
  WriteUuid(node.device().uuid, uuid);
  return CopyText(text, text_bytes, uuid);
}

NVML_EXPORT int nvmlDeviceGetIndex(DeviceHandle device, unsigned* index) {
  return Fact(device, index, 0u);
}

NVML_EXPORT int nvmlDeviceGetBrand(DeviceHandle device, unsigned* brand) {
  return Fact(device, brand, Brand(node.device().name));
}

NVML_EXPORT int nvmlDeviceGetCudaComputeCapability(DeviceHandle device, int* major, int* minor) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (major == nullptr || minor == nullptr) return kInvalidArgument;
  int found_major, found_minor;
  if (!ComputeCapability(&found_major, &found_minor)) return kNotSupported;
  *major = found_major;
  *minor = found_minor;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetArchitecture(DeviceHandle device, unsigned* architecture) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (architecture == nullptr) return kInvalidArgument;
  int major, minor;
  if (!ComputeCapability(&major, &minor)) return kNotSupported;
  *architecture = Architecture(major, minor);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetNumGpuCores(DeviceHandle device, unsigned* cores) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (cores == nullptr) return kInvalidArgument;
  int major, minor, multiprocessors;
  if (!ComputeCapability(&major, &minor) ||
      !Attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &multiprocessors) ||
      CoresPerMultiprocessor(major, minor) == 0) {
    return kNotSupported;
  }
  *cores = static_cast<unsigned>(multiprocessors) * CoresPerMultiprocessor(major, minor);
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetPciInfo_v3(DeviceHandle device, PciInfo* pci) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (pci == nullptr) return kInvalidArgument;
  *pci = DescribePci();
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetPciInfo_v2(DeviceHandle device, PciInfoV2* pci) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (pci == nullptr) return kInvalidArgument;
  const PciInfo info = DescribePci();
  *pci = {info.place, info.subsystem, {}};
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetPciInfo(DeviceHandle device, PciInfoV1* pci) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (pci == nullptr) return kInvalidArgument;
  *pci = DescribePci().place;
  return kSuccess;
}
NVML_EXPORT int nvmlDeviceGetPciInfoExt(DeviceHandle device, PciInfoExt* pci) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (pci == nullptr) return kInvalidArgument;
  if (pci->version != VersionOf(sizeof(*pci), 1)) return kArgumentVersionMismatch;
  const PciInfo info = DescribePci();
  // Display controller, 3D: what every NVIDIA GPU for computing is.
  constexpr uint32_t kDisplay = 3, k3d = 2;
  PciInfoExt out = {pci->version,
                    info.place.domain,
                    info.place.bus,
                    info.place.device,
                    info.place.device_and_vendor,
                    info.subsystem,
                    kDisplay,
                    k3d,
                    {}};
  memcpy(out.bus_id, info.bus_id, sizeof(out.bus_id));
  *pci = out;
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetBusType(DeviceHandle device, unsigned* type) {
  return Fact(device, type, 2u);  // PCI Express
}

// Modes. What runs below is the node's business; these are the tenant's device's own.
NVML_EXPORT int nvmlDeviceGetComputeMode(DeviceHandle device, int* mode) {
  return Fact(device, mode, 0);  // any number of processes
}
NVML_EXPORT int nvmlDeviceGetPersistenceMode(DeviceHandle device, int* mode) {
  return Fact<int>(device, mode, kEnabled);  // the scheduler keeps the device awake
}
NVML_EXPORT int nvmlDeviceGetDisplayMode(DeviceHandle device, int* mode) {
  return Fact<int>(device, mode, kDisabled);
}
NVML_EXPORT int nvmlDeviceGetDisplayActive(DeviceHandle device, int* active) {
  return Fact<int>(device, active, kDisabled);
}
NVML_EXPORT int nvmlDeviceGetMultiGpuBoard(DeviceHandle device, unsigned* is_multi) {
  return Fact(device, is_multi, 0u);
}
NVML_EXPORT int nvmlDeviceGetMigMode(DeviceHandle device, unsigned* now, unsigned* pending) {
  if (const Return result = Fact(device, now, 0u); result != kSuccess) return result;
  return Fact(device, pending, 0u);
}
NVML_EXPORT int nvmlDeviceGetMaxMigDeviceCount(DeviceHandle device, unsigned* count) {
  return Fact(device, count, 0u);
}
NVML_EXPORT int nvmlDeviceIsMigDeviceHandle(DeviceHandle device, unsigned* is_mig) {
  return Fact(device, is_mig, 0u);
}

NVML_EXPORT int nvmlDeviceGetMemoryBusWidth(DeviceHandle device, unsigned* bits) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (bits == nullptr) return kInvalidArgument;
  int width;
  if (!Attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, &width)) return kNotSupported;
  *bits = static_cast<unsigned>(width);
  return kSuccess;
}
