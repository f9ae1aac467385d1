// SPDX-License-Identifier: Apache-2.0
// Device memory that the one context keeps because a tenant raised a limit or had many streams, shared by all tenants until
// the executor ends: the driver never gives it back. The session that raises it is charged for the growth until then, and
// so is who had the streams, until others have as many (stream_charges.h); a fresh context's memory comes out of the operator's
// reserve (docs/policy.md). Owned by the loop; ring thread only.
//
//   const uint64_t price = memory.PriceOf(kind, value);  // charged to the quota before calling the driver
//   …                                                    // the driver call has succeeded
//   memory.Raise(kind, value, charge);
#pragma once

#include <cstdint>
#include <vector>

#include "agent/executor/device/device_charge.h"
#include "agent/executor/device/stream_charges.h"
#include "proto/cuda/driver.h"

namespace gpuloom::executor {

class ContextMemory {
 public:
  enum class Kind {
    kThread,  // stack or local memory per thread that the device can hold, bytes
    kPrintf,  // bytes
    kHeap,    // bytes
  };

  // `threads`: the most that can be resident on the device at a time.
  explicit ContextMemory(uint64_t threads) : threads_(threads) {}

  // Bytes by which the context's memory grows if `value` is needed.
  uint64_t PriceOf(Kind kind, uint64_t value) const;
  void Raise(Kind kind, uint64_t value, DeviceChargeRef charge);
  StreamCharges* streams() { return &streams_; }

 private:
  const uint64_t threads_;
  // By Kind; initially CUDA's defaults, as in a fresh context.
  uint64_t highest_[3] = {1024, uint64_t{1} << 20, uint64_t{8} << 20};
  std::vector<DeviceChargeRef> charges_;
  StreamCharges streams_;
};

// Raises a limit of the current context to `value`, and never lowers it: another tenant may rely on the present one. Waits
// for all that runs on the device, so call it in a quiet moment. Ring thread or worker.
[[nodiscard]] CUresult RaiseLimit(const Driver& cuda, CUlimit limit, size_t value);

}  // namespace gpuloom::executor
