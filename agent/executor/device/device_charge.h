// SPDX-License-Identifier: Apache-2.0
// A charge to a session's quota for device memory that the driver takes inside this process: code and variables
// of images, graphs, arrays, green contexts, what the context keeps. Requested from the scheduler before the
// driver call; returned by the last reference, possibly after the session's end: until then it stays on the
// allocation's account.
//
// Ring thread only. `scheduler` outlives every charge. Sizes are bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

class SchedulerLink;

class DeviceCharge {
 public:
  DeviceCharge(SchedulerLink* scheduler, uint64_t session_id, uint64_t memory_id)
      : scheduler_(scheduler), session_id_(session_id), memory_id_(memory_id) {}
  DeviceCharge(const DeviceCharge&) = delete;
  DeviceCharge& operator=(const DeviceCharge&) = delete;
  ~DeviceCharge();

  // Returns the charge, and calls `done` when the quota is free again. Call it once, through the last reference.
  void Return(std::function<void()> done);

 private:
  SchedulerLink* const scheduler_;
  const uint64_t session_id_;
  const uint64_t memory_id_;
  bool returned_ = false;
};
using DeviceChargeRef = std::shared_ptr<DeviceCharge>;

// Calls `done` with the charge (null for 0 bytes) or with the error; for 0 bytes immediately.
// `open` is incremented meanwhile: it and whatever `done` uses must live until then.
void ChargeDevice(SchedulerLink* scheduler, uint64_t session_id, uint64_t bytes, uint32_t* open,
                  std::function<void(CUresult, DeviceChargeRef)> done);

}  // namespace gpuloom::executor
