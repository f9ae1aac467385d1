// SPDX-License-Identifier: Apache-2.0
// Stands in for libnvidia-ml.so.1: one device that answers most questions.
#include <cstring>

namespace {

struct Device {
  int number;
} the_device;

constexpr int kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6;

int Give(const Device* device, unsigned* out, unsigned value) {
  if (device != &the_device || out == nullptr) return kInvalidArgument;
  *out = value;
  return 0;
}

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, Device** device) {
  if (std::strcmp(uuid, "GPU-01020304-0506-0708-090a-0b0c0d0e0f10") != 0) return kNotFound;
  *device = &the_device;
  return 0;
}
int nvmlDeviceGetMaxPcieLinkGeneration(Device* device, unsigned* out) {
  return Give(device, out, 5);
}
int nvmlDeviceGetGpuMaxPcieLinkGeneration(Device* device, unsigned* out) {
  return Give(device, out, 6);
}
int nvmlDeviceGetCurrPcieLinkWidth(Device* device, unsigned* out) { return Give(device, out, 8); }
int nvmlDeviceGetMaxPcieLinkWidth(Device* device, unsigned* out) { return Give(device, out, 16); }
int nvmlDeviceGetPowerManagementDefaultLimit(Device*, unsigned*) { return kNotSupported; }
int nvmlDeviceGetPowerManagementLimitConstraints(Device* device, unsigned* least, unsigned* most) {
  const int result = Give(device, least, 200'000);
  return result != 0 ? result : Give(device, most, 700'000);
}
int nvmlDeviceGetMaxClockInfo(Device* device, unsigned type, unsigned* out) {
  return type == 3 ? kNotSupported : Give(device, out, 1000 + type);
}
int nvmlDeviceGetPciInfo_v3(Device* device, PciInfo* out) {
  if (device != &the_device) return kInvalidArgument;
  *out = {};
  out->pci_device_id = 0x233510de;
  out->pci_subsystem_id = 0x18be10de;
  return 0;
}

}  // extern "C"
