// SPDX-License-Identifier: Apache-2.0
// Launches of kernels. Those with more than a shape (clusters, all blocks at once, an early start) have their own command,
// so that the plain one stays small; graphs keep the same attributes with their kernels.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

inline constexpr uint32_t kMaxKernelParamBytes = 32764;  // CUDA 12.1's limit on sm_70 and later

// Payload: the packed parameter buffer, exactly KernelGet's param_bytes.
struct Launch {
  static constexpr std::string_view kName = "Launch";
  static constexpr bool kReply = false;
  static constexpr uint32_t kMaxPayloadBytes = kMaxKernelParamBytes;
  struct Request {
    StreamId stream;
    KernelId kernel;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t dynamic_shared_bytes;
    uint32_t flags;  // none so far: must be 0 (attributes: LaunchEx)
  };
  using Reply = NoReply;
};

// A launch's attributes, as CUDA names them. Only what the device has to know: hints about caches and waiting stay
// with the tenant, and events that a launch triggers are recorded by an EventRecord after it.
struct LaunchAttributes {
  uint32_t set;  // 1 << CUlaunchAttributeID for each one set; the others are 0 below
  uint32_t cooperative;
  uint32_t cluster[3];
  uint32_t preferred_cluster[3];
  uint32_t cluster_scheduling_policy;  // CUclusterSchedulingPolicy
  uint32_t
      programmatic_serialization;  // 1: may start before the stream's previous kernel has ended
  int32_t priority;
  uint32_t sync_domain;      // CUlaunchMemSyncDomain
  uint32_t sync_domain_map;  // the default's in the low 8 bits, the remote's in the next
  uint32_t shared_memory_carveout;
};

// CUlaunchAttributeID by value: this header does not include cuda.h.
inline constexpr uint32_t kLaunchAttributesKnown = 1u << 2 |   // cooperative
                                                   1u << 4 |   // cluster dimension
                                                   1u << 5 |   // cluster scheduling policy
                                                   1u << 6 |   // programmatic serialization
                                                   1u << 8 |   // priority
                                                   1u << 9 |   // sync domain map
                                                   1u << 10 |  // sync domain
                                                   1u << 11 |  // preferred cluster dimension
                                                   1u << 14;   // shared memory carveout

// As Launch. Payload: the packed parameter buffer, exactly KernelGet's param_bytes.
struct LaunchEx {
  static constexpr std::string_view kName = "LaunchEx";
  static constexpr bool kReply = false;
  static constexpr uint32_t kMaxPayloadBytes = kMaxKernelParamBytes;
  struct Request {
    StreamId stream;
    KernelId kernel;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t dynamic_shared_bytes;
    LaunchAttributes attributes;
  };
  using Reply = NoReply;
};

}  // namespace gpuloom::wire
