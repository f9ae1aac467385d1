// SPDX-License-Identifier: Apache-2.0
// The GPU as the scheduler uses it: facts about it, and physical memory. An interface, so that
// tests run without a driver; OpenDevice returns the real one, which must outlive everything that
// holds its memory. The scheduler's thread only. Failed driver calls are returned as a CUresult. No
// context is ever created, so no tenant can poison anything here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "proto/channel/unique_fd.h"
#include "proto/wire/query.h"
#include "proto/wire/session.h"

namespace gpuloom::scheduler {

// What the driver reports about the device, unmasked (device_snapshot.h turns it into what a tenant
// sees).
struct DeviceFacts {
  int32_t driver_version = 0;
  std::string driver_text;  // "580.95.05"; empty where the library's name does not say it
  std::string name;
  uint8_t uuid[16] = {};
  std::string pci_bus_id;
  uint64_t total_memory_bytes = 0;
  int32_t attributes[wire::kDeviceAttributes] = {};  // kNoAttribute where the driver has none
  wire::DeviceDescription description{};
};

class Device {
 public:
  virtual ~Device() = default;
  const DeviceFacts& facts() const { return facts_; }

  // Creates physical memory of `size_bytes` (a multiple of 2 MiB), and a descriptor for one
  // importer. Returns a CUresult.
  [[nodiscard]] virtual uint32_t CreateMemory(uint64_t size_bytes, uint64_t* handle,
                                              channel::UniqueFd* exported) = 0;
  // Releases the scheduler's own reference; importers keep the memory alive until they release
  // theirs.
  virtual void ReleaseMemory(uint64_t handle) = 0;

 protected:
  DeviceFacts facts_;
};

// Loads the driver library and opens the device: "0", or "GPU-8d7e6a90-…". Returns nullptr with a
// message that names what to check.
[[nodiscard]] std::unique_ptr<Device> OpenDevice(const std::string& cuda_library,
                                                 const std::string& index_or_uuid,
                                                 std::string* error);

}  // namespace gpuloom::scheduler
