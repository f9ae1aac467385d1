// SPDX-License-Identifier: Apache-2.0
// The device as one tenant sees it. Attributes describe what the tenant has, not the hardware: a
// feature that gpuloom does not implement is 0 whatever the hardware can do (kMasked in
// device_snapshot.cc lists them). Everything else is passed on as the driver reports it. Pure.
#pragma once

#include "agent/scheduler/device.h"
#include "proto/wire/session.h"

namespace gpuloom::scheduler {

// The toolkit that proto/cuda/driver_api.def was made from. Our table lacks the functions of newer
// drivers, so this is the highest version that tenants are told.
inline constexpr int32_t kToolkitVersion = 13000;

struct StreamPriorities {
  int32_t least = 0;
  int32_t greatest = 0;
};

// `multiprocessors_untrusted`: how many the tenant may use, as its executor reports; 0: all of
// them.
wire::DeviceSnapshot MakeSnapshot(const DeviceFacts& facts, uint64_t memory_quota_bytes,
                                  StreamPriorities priorities,
                                  uint32_t multiprocessors_untrusted = 0);

}  // namespace gpuloom::scheduler
