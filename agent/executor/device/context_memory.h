// SPDX-License-Identifier: Apache-2.0
// What tenants make the one context keep of the device's memory, for all of them and until the executor
// ends: the driver gives none of it back. Who makes it larger pays for what it grows by, until then; what
// a fresh context has is the operator's reserve (docs/policy.md). Owned by the loop; ring thread only.
//
//   const uint64_t price = memory.PriceOf(kind, value);  // of the quota, before the driver is asked
//   … the driver has it …
//   memory.Raise(kind, value, charge);
#pragma once

#include <cstdint>
#include <vector>

#include "agent/executor/device/device_charge.h"

namespace gpuloom::executor {

class ContextMemory {
 public:
  enum class Kind {
    kThread,  // stack or local memory of each thread that the device can hold, bytes
    kPrintf,  // bytes
    kHeap,    // bytes
  };

  // `threads` that the device holds at a time.
  explicit ContextMemory(uint64_t threads) : threads_(threads) {}

  // Bytes by which the context's memory grows when it needs `value`.
  uint64_t PriceOf(Kind kind, uint64_t value) const;
  void Raise(Kind kind, uint64_t value, DeviceChargeRef charge);

 private:
  const uint64_t threads_;
  // By Kind; CUDA's defaults, which a fresh context has.
  uint64_t highest_[3] = {1024, uint64_t{1} << 20, uint64_t{8} << 20};
  std::vector<DeviceChargeRef> charges_;
};

}  // namespace gpuloom::executor
