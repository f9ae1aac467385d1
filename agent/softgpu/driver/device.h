// SPDX-License-Identifier: Apache-2.0
// The software devices: identity, attributes and the count of memory in use.
//
// Devices are made once by MakeDevices and never destroyed. Ordinals are 0 … DeviceCount()-1; a lost device has none.
// All of it is safe from any thread after cuInit.
#pragma once

#include <atomic>
#include <cstdint>

#include "agent/softgpu/driver/hardware_queues.h"
#include "agent/softgpu/driver/settings.h"
#include "agent/softgpu/exec/machine/module.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::softgpu {

struct Context;

// What the software device offers, whatever it plays (played.h), besides the limits of one block in
// exec/machine/module.h.
inline constexpr int kMaxBlockDimZ = 64;
inline constexpr int kMaxGridDimYZ = 65535;
inline constexpr int kRegistersPerMultiprocessor = 65536;

struct Device {
  explicit Device(int hardware_queues) : queues(hardware_queues), times(hardware_queues) {}

  int ordinal = 0;
  int number = 0;  // its number on the node, lost devices included
  CUuuid uuid{};
  uint64_t memory_bytes = 0;
  std::atomic<uint64_t> used_bytes{0};
  HardwareQueues queues;
  HardwareQueues times;        // the same as events with timing use them
  Context* primary = nullptr;  // made with the device, activated by retain

  // Takes bytes from the device's memory; false when there are not that many left.
  [[nodiscard]] bool Take(uint64_t size_bytes);
  void GiveBack(uint64_t size_bytes);
};

void MakeDevices(const Settings& settings);
int DeviceCount();
int Multiprocessors();  // of each device

// nullptr when the number names no device.
Device* FindDevice(CUdevice ordinal);

// PCI address as reported everywhere: domain 0, one bus per device, slot 0.
int PciBus(const Device& device);

[[nodiscard]] CUresult DeviceAttribute(const Device& device, CUdevice_attribute attribute,
                                       int& value);

}  // namespace gpuloom::softgpu
