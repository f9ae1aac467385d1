// SPDX-License-Identifier: Apache-2.0
// Queries about an allocation without becoming a session of it: where NVML in a tenant's process
// gets its answers. On the allocation's socket, instead of the handshake (session.h):
//
//   tenant → scheduler   Query, which is a Hello with kQueryMagic
//   scheduler → tenant   QueryAnswer; then the scheduler disconnects
//
// Costs the scheduler one message and starts nothing. The answer is about the requester's own
// allocation and reveals nothing of any other.
#pragma once

#include <cstdint>

#include "proto/wire/session.h"

namespace gpuloom::wire {

inline constexpr uint32_t kQueryMagic = 0x6b6f6f6c;  // "look"

// As many as an allocation may have sessions.
inline constexpr uint32_t kMaxProcessUses = 64;

struct ProcessUse {
  int32_t pid;  // in the requester's pid namespace
  uint32_t unused;
  uint64_t used_memory_bytes;
};

// What the node's NVML reports about the device and CUDA does not, read once when the scheduler
// starts. Only what describes the device, never what shows its load. 0 where unknown.
struct DeviceDescription {
  uint32_t pci_device_and_vendor;
  uint32_t pci_subsystem;
  uint32_t pcie_generation;  // the best that device and slot do together
  uint32_t pcie_device_generation;
  uint32_t pcie_width;        // as the link came up
  uint32_t pcie_max_width;    // the widest that device and slot do together
  uint32_t max_clock_mhz[4];  // graphics, multiprocessors, memory, video
  uint32_t power_default_mw;
  uint32_t power_min_mw;
  uint32_t power_max_mw;
  uint32_t unused;
};
static_assert(WireStruct<DeviceDescription>);

struct QueryAnswer {
  uint32_t magic;  // kQueryMagic
  uint16_t major;  // the server's own
  uint16_t minor;
  Admission admission;  // what follows `message` is valid when it is kAccepted
  uint32_t process_count;
  char message[256];           // NUL-terminated text for the log, when not accepted
  DeviceSnapshot device;       // without the stream priorities, which only an executor knows
  uint64_t used_memory_bytes;  // of all sessions of the allocation
  char driver_text[80];        // "580.95.05"; empty where the driver does not say it
  // The live sessions that reported the requester's pid namespace as theirs.
  ProcessUse processes[kMaxProcessUses];
  DeviceDescription description;  // since 1.2
};
static_assert(WireStruct<QueryAnswer>);

}  // namespace gpuloom::wire
