// SPDX-License-Identifier: Apache-2.0
// The software devices: identity, attributes and the count of memory in use.
//
// Devices are made once by MakeDevices and never destroyed. Ordinals are 0 … DeviceCount()-1.
// All of it is safe from any thread after cuInit.
#pragma once

#include <atomic>
#include <cstdint>

#include "agent/softgpu/driver/settings.h"
#include "agent/softgpu/exec/machine/module.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::softgpu {

struct Context;

// What one streaming multiprocessor of the software device offers, beside exec/machine/module.h's limits of
// one block. The per-block and per-SM numbers are those of compute capability 9.0, so that programs
// tuned for it take the same paths. Four multiprocessors: enough that occupancy-sized grids have
// several blocks, few enough that they stay small for a CPU.
inline constexpr int kMultiprocessors = 4;
inline constexpr int kMaxBlockDimZ = 64;
inline constexpr int kMaxGridDimYZ = 65535;
inline constexpr int kMaxThreadsPerMultiprocessor = 2048;
inline constexpr int kMaxBlocksPerMultiprocessor = 32;
inline constexpr int kSharedPerMultiprocessorBytes = 228 << 10;
inline constexpr int kSharedReservedPerBlockBytes = 1 << 10;
inline constexpr int kRegistersPerMultiprocessor = 65536;

struct Device {
  int ordinal = 0;
  CUuuid uuid{};
  uint64_t memory_bytes = 0;
  std::atomic<uint64_t> used_bytes{0};
  Context* primary = nullptr;  // made with the device, activated by retain

  // Takes bytes from the device's memory; false when there are not that many left.
  [[nodiscard]] bool Take(uint64_t size_bytes);
  void GiveBack(uint64_t size_bytes);
};

void MakeDevices(const Settings& settings);
int DeviceCount();

// nullptr for a number that is no device.
Device* FindDevice(CUdevice ordinal);

// PCI address as reported everywhere: domain 0, one bus per device, slot 0.
int PciBus(const Device& device);

[[nodiscard]] CUresult DeviceAttribute(const Device& device, CUdevice_attribute attribute,
                                       int& value);

}  // namespace gpuloom::softgpu
