// SPDX-License-Identifier: Apache-2.0
// The handshake between a tenant and the scheduler on the allocation's socket (SOCK_SEQPACKET),
// before the ring exists.
//
//   tenant → scheduler   Hello
//   scheduler → tenant   Welcome, with kWelcomeFds descriptors when result is kAccepted
//
// A process that connects to an allocation's socket *is* that allocation: Hello carries no identity, because nothing
// that a tenant says about itself is trusted. The connection stays open for the session's life: closing it ends the
// session.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/wire/handles.h"
#include "proto/wire/version.h"
#include "proto/wire/wire_struct.h"

namespace gpuloom::wire {

inline constexpr uint32_t kHelloMagic = 0x6d6f6f6c;  // "loom"

// Where a tenant finds its socket: at this path in a container; elsewhere in the directory named by
// GPULOOM_SOCKET_DIR (which only says where to connect; the scheduler decides what is granted
// there).
inline constexpr char kContainerSocketDir[] = "/var/run/gpuloom";
inline constexpr char kSocketDirVariable[] = "GPULOOM_SOCKET_DIR";
inline constexpr char kSocketName[] = "gpuloom.sock";

// Identifies a session to the scheduler that made it, to resume it: 16 bytes that cannot be guessed.
// All zero: none. Reserved; a scheduler that cannot do so yet refuses a Hello with a token.
struct SessionToken {
  uint8_t bytes[16];

  constexpr bool empty() const {
    for (const uint8_t byte : bytes) {
      if (byte != 0) return false;
    }
    return true;
  }
};
static_assert(WireStruct<SessionToken> && sizeof(SessionToken) == 16);

struct Hello {
  uint32_t magic;
  uint16_t major;
  uint16_t minor;
  // Since 1.1. The pid that the process reports, used only to answer queries from its own allocation (query.h), because
  // it is not verified. 0 and 0 if unknown.
  int32_t pid;
  uint32_t trace_ms;       // since 1.4: the length of the trace, in a request for one (trace.h)
  uint64_t pid_namespace;  // the namespace of `pid`
  SessionToken token;      // since 1.3: of the session to resume; empty for a new one
};
static_assert(WireStruct<Hello> && sizeof(Hello) == 40);
// The size that a tenant of version 1.0 sends. What a newer tenant appends is ignored.
inline constexpr size_t kShortestHelloBytes = 8;
inline constexpr size_t kLongestHelloBytes = 256;

enum class Admission : uint32_t {
  kAccepted,
  kRefused,       // `message` says why: identity not resolved, policy, no room
  kWrongVersion,  // `message` names both versions
  kDeviceLost,    // the executor could not be started
};

// CU_DEVICE_ATTRIBUTE_* are numbered from 1 and below 160 in CUDA 13.0; room for growth.
inline constexpr uint32_t kDeviceAttributes = 256;

// The device as this tenant sees it: made by the scheduler, one table
// (agent/scheduler/device_snapshot.cc).
struct DeviceSnapshot {
  int32_t driver_version;  // as cuDriverGetVersion reports it: min(the real driver, the toolkit our
                           // table was made from)
  int32_t pci_domain;
  int32_t pci_bus;
  int32_t pci_device;
  char pci_bus_id[16];
  char name[256];
  uint8_t uuid[16];
  uint64_t total_memory_bytes;  // the allocation's quota
  int32_t stream_priority_least;
  int32_t stream_priority_greatest;
  int32_t attributes[kDeviceAttributes];  // index = CUdevice_attribute; kNoAttribute where there is
                                          // none
};
static_assert(WireStruct<DeviceSnapshot>);

struct Welcome {
  uint32_t magic;
  uint16_t major;  // the server's own
  uint16_t minor;
  Admission admission;
  uint32_t unused;
  char message[256];    // NUL-terminated text for the log, when not accepted
  uint64_t session_id;  // for logs
  // Address ranges, disjoint from those of every other session of this GPU. The tenant reserves
  // both (PROT_NONE, MAP_FIXED_NOREPLACE) when it attaches, and maps the arena over the whole host
  // range.
  uint64_t device_range_begin;
  uint64_t device_range_bytes;
  uint64_t host_range_begin;
  uint64_t host_range_bytes;    // == size of the arena memfd (sparse)
  uint64_t pinned_limit_bytes;  // how much of it the session may register
  DeviceSnapshot device;
  SessionToken token;  // since 1.3: the session's; a secret of the tenant
};
static_assert(WireStruct<Welcome>);
// The size that a scheduler of version 1.0 sends.
inline constexpr size_t kShortestWelcomeBytes = offsetof(Welcome, token);

// Descriptors that come with an accepting Welcome, in this order.
enum WelcomeFd : uint32_t {
  kCommandRegionFd,     // read-write
  kCompletionRegionFd,  // read-only
  kArenaFd,             // read-write
  kDoorbellFd,          // stream socket: one byte wakes the peer; hang-up = the executor is gone
  kWelcomeFds,
};

}  // namespace gpuloom::wire
