// SPDX-License-Identifier: Apache-2.0
// What the node's scheduler says about this process's allocation, asked over its socket without a
// session (proto/wire/query.h). One per process, constant-initialised, never destroyed; safe from
// any thread. Failures are NVML codes; the reason for the first is logged.
#pragma once

#include "proto/wire/query.h"
#include "shim/nvml/nvml_api.h"
#include "shim/process/futex.h"
#include "shim/process/log.h"

namespace gpuloom::nvml {

class Node {
 public:
  // nvmlInit, counted: the first asks the scheduler, and fails as that does.
  [[nodiscard]] Return Init();
  // nvmlShutdown.
  [[nodiscard]] Return Shutdown();
  bool initialized() const { return init_count_.load(std::memory_order_acquire) != 0; }

  // The allocation's current state. A caller in a tight loop gets an answer up to 50 ms old: the
  // scheduler serves an allocation's connections at a limited rate, and new sessions are among
  // them.
  [[nodiscard]] Return Look(wire::QueryAnswer* answer);

  // Constant from the first Init on.
  const wire::DeviceSnapshot& device() const { return first_.device; }
  const char* driver_text() const { return first_.driver_text; }
  const wire::DeviceDescription& description() const { return first_.description; }

 private:
  // Limit for fresh answers: ten at once, and one every 50 ms.
  static constexpr int64_t kBurst = 10;
  static constexpr int64_t kTurnNs = 50'000'000;

  // Not analysed: the child has only this thread, and makes the lock anew.
  static void OnForkedChild() GPULOOM_NO_THREAD_SAFETY_ANALYSIS;
  [[nodiscard]] Return Ask(wire::QueryAnswer* answer);

  Lock lock_;
  std::atomic<uint32_t> init_count_{0};
  FailureLog failures_{LogLevel::kInfo, "NVML"};
  bool fork_handled_ GPULOOM_GUARDED_BY(lock_) = false;
  bool known_ GPULOOM_GUARDED_BY(lock_) = false;  // first_ is set, and never changes
  wire::QueryAnswer first_ = {};
  wire::QueryAnswer last_ GPULOOM_GUARDED_BY(lock_) = {};
  bool last_valid_ GPULOOM_GUARDED_BY(lock_) = false;
  int64_t credit_ns_ GPULOOM_GUARDED_BY(lock_) = 0;  // time saved up for fresh answers
  int64_t last_query_ns_ GPULOOM_GUARDED_BY(lock_) = 0;
};

extern Node node;

// OK for a handle of ours in an initialised library.
[[nodiscard]] Return CheckDevice(DeviceHandle device);
DeviceHandle OnlyDevice();

}  // namespace gpuloom::nvml
