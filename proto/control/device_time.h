// SPDX-License-Identifier: Apache-2.0
// A policy's terms for the device's time, and what sessions have used of it: parts of messages (messages.h), which
// change by the same rules. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuloom::control {

// A policy's terms for one allocation's GPU time (docs/design/sharing-time.md). 0: not set; the default applies.
struct ShareTerms {
  uint32_t namespace_weight;  // 1 to 1000; default 100
  uint32_t weight;            // the same, within the namespace and for each slot
  uint32_t priority;          // 1 high, 2 normal, 3 low; default normal
  uint32_t
      namespace_time_permille;  // the most of the GPU's time for the whole namespace; 0: no ceiling
  uint32_t time_permille;       // the same for the allocation

  bool operator==(const ShareTerms&) const = default;
};

// A policy's limits for the kernels of one allocation. 0: no limit. Since 3.4.
struct KernelTerms {
  uint32_t warn_after_ms;  // a kernel that runs for longer is reported
  uint32_t end_after_ms;   // for one that runs for longer, its trust domain's executor is ended

  bool operator==(const KernelTerms&) const = default;
};

// A policy's terms for an allocation's multiprocessors, in percent of the GPU's; 0: not set. Since 3.4.
struct PartitionTerms {
  uint32_t namespace_sm_percent;   // the most for all allocations of the namespace together
  uint32_t namespace_sm_reserved;  // those that no other namespace of the trust domain may use
  uint32_t sm_percent;             // the most for the allocation
  uint32_t sm_reserved;            // those that no other allocation of the namespace may use

  bool operator==(const PartitionTerms&) const = default;
};

// How long sessions have used the GPU since they began, and how long they have waited for it.
struct TimeUsage {
  uint64_t compute_ns;
  uint64_t copy_to_device_ns;
  uint64_t copy_from_device_ns;
  uint64_t queue_ns;      // work was ready but waited; includes throttled_ns
  uint64_t throttled_ns;  // work waited because of a ceiling
  uint64_t held_ns;  // work waited while the session was held (HoldSession), or for a quiet moment
};

// A histogram of durations. counts[i] is the number of those of at most kHistogramBoundsNs[i] and more than the bound
// before; the last count has no upper bound. Since 3.3, as is WorkCounts.
inline constexpr uint64_t kHistogramBoundsNs[] = {
    10'000,     50'000,     100'000,     500'000,     1'000'000,     5'000'000,
    10'000'000, 50'000'000, 100'000'000, 500'000'000, 1'000'000'000, 10'000'000'000};
inline constexpr size_t kHistogramCounts = sizeof(kHistogramBoundsNs) / sizeof(uint64_t) + 1;
struct Histogram {
  uint64_t counts[kHistogramCounts];
  uint64_t sum_ns;
};

// How much work sessions have given the device since they began.
struct WorkCounts {
  uint64_t batches;  // groups of launches that were submitted together
  // Without those in the program's graphs.
  uint64_t copies_to_device;
  uint64_t copies_from_device;
  uint64_t copies_on_device;
  uint64_t bytes_to_device;
  uint64_t bytes_from_device;
  uint64_t bytes_on_device;
  Histogram
      queue;  // for each time that a session's waiting work was released: how long it had waited
  Histogram throttled;   // the same for work that a ceiling delayed: for how long it did
  Histogram completion;  // from the submission of kernels to the GPU until they are seen complete
};

// Why a session ended although its program did not end it.
enum class Fault : uint32_t {
  kBrokeProtocol,  // it violated the wire protocol
  kLostDevice,     // the context was lost, most likely by its work
  kDidNotDrain,    // its work did not end in time
  kLostExecutor,   // its executor ended otherwise, mostly by another's fault
  kLongKernel,     // a kernel of its ran for longer than KernelTerms::end_after_ms; since 3.4
};
inline constexpr uint32_t kFaults = 5;

}  // namespace gpuloom::control
