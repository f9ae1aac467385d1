// SPDX-License-Identifier: Apache-2.0
// The device as one tenant sees it. Attributes describe what the tenant has, not the hardware: what
// gpuloom does not implement (yet) is 0 in one table, kMasked in device_snapshot.cc, whatever the
// hardware can do. Everything else is passed on as the driver reports it. Pure.
#pragma once

#include "agent/scheduler/device.h"
#include "proto/wire/session.h"

namespace gpuloom::scheduler {

// The toolkit that proto/cuda/driver_api.def was made from: a newer driver's functions are not in
// our table, so tenants are told this version at most.
inline constexpr int32_t kToolkitVersion = 13000;

struct StreamPriorities {
  int32_t least = 0;
  int32_t greatest = 0;
};

// `multiprocessors_untrusted`: how many of them the tenant may use, as its executor says; 0: all.
wire::DeviceSnapshot MakeSnapshot(const DeviceFacts& facts, uint64_t memory_quota_bytes,
                                  StreamPriorities priorities,
                                  uint32_t multiprocessors_untrusted = 0);

}  // namespace gpuloom::scheduler
