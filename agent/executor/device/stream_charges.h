// SPDX-License-Identifier: Apache-2.0
// What allocations are charged for streams. The driver keeps the device memory of a stream that is destroyed, for the next
// one, until the executor ends (H200, 580.159.04: 2,186 MiB of 4,000). So what an allocation was charged stays charged, if
// the driver has made more than a fresh context has, until another stream is charged for that memory.
//
// Owned by ContextMemory; the charges hold it, and end before it does. Ring thread only. Nothing fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "agent/executor/device/device_charge.h"

namespace gpuloom::executor {

class Device;
class StreamCharges;

// One stream's, as long as the stream is there.
class StreamCharge {
 public:
  StreamCharge(StreamCharges* all, const Device* device, uint64_t allocation,
               DeviceChargeRef charge, bool is_made)
      : all_(all),
        device_(device),
        allocation_(allocation),
        charge_(std::move(charge)),
        is_made_(is_made) {}
  StreamCharge(const StreamCharge&) = delete;
  StreamCharge& operator=(const StreamCharge&) = delete;
  ~StreamCharge();

  // CUDA has made it. Until then the driver has no memory for it.
  void OnMade();

 private:
  StreamCharges* const all_;
  const Device* const device_;
  const uint64_t allocation_;
  DeviceChargeRef charge_;
  bool is_made_;
};
using StreamChargeRef = std::shared_ptr<StreamCharge>;

class StreamCharges {
 public:
  // For a new stream of the allocation, which pays for one that is gone; null if it does not.
  StreamChargeRef Take(const Device* device, uint64_t allocation);
  // The same with a new charge.
  StreamChargeRef Add(const Device* device, uint64_t allocation, DeviceChargeRef charge) {
    return std::make_shared<StreamCharge>(this, device, allocation, std::move(charge), false);
  }
  size_t kept() const { return kept_count_; }

 private:
  friend class StreamCharge;
  DeviceChargeRef TakeKept(std::map<uint64_t, std::vector<DeviceChargeRef>>::iterator of);

  std::map<uint64_t, std::vector<DeviceChargeRef>> kept_;  // by allocation; none is empty
  size_t kept_count_ = 0;
  size_t made_ = 0;  // streams that are there, and charged
};

}  // namespace gpuloom::executor
