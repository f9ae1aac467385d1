// SPDX-License-Identifier: Apache-2.0
// What a policy says of the device's time, and what sessions have had of it: parts of messages (messages.h), which
// change by the same rules.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuloom::control {

// What a policy says of one allocation's GPU time (docs/design/sharing-time.md). 0: not said, and the default applies.
struct ShareTerms {
  uint32_t namespace_weight;  // 1 to 1000; default 100
  uint32_t weight;            // the same, within the namespace and for each slot
  uint32_t priority;          // 1 high, 2 normal, 3 low; default normal
  uint32_t
      namespace_time_permille;  // of the GPU's time, at most, all of the namespace's together; 0: no ceiling
  uint32_t time_permille;  // the same for the allocation

  bool operator==(const ShareTerms&) const = default;
};

// What a policy says of the kernels of one allocation. 0: nothing. Since 3.4.
struct KernelTerms {
  uint32_t warn_after_ms;  // one that runs for longer is reported
  uint32_t end_after_ms;   // … costs its trust domain the executor

  bool operator==(const KernelTerms&) const = default;
};

// What the policy says of an allocation's multiprocessors, in percent of all that the GPU has; 0: nothing. Since 3.4.
struct PartitionTerms {
  uint32_t namespace_sm_percent;   // of the namespace's allocations together, at most
  uint32_t namespace_sm_reserved;  // of them, for no other namespace of the trust domain
  uint32_t sm_percent;             // the same for the allocation
  uint32_t sm_reserved;            // for no other of the namespace's allocations

  bool operator==(const PartitionTerms&) const = default;
};

// What sessions have had of the GPU since they began, and what they have waited for it.
struct TimeUsage {
  uint64_t compute_ns;
  uint64_t copy_to_device_ns;
  uint64_t copy_from_device_ns;
  uint64_t queue_ns;      // work was ready and waited; includes the next
  uint64_t throttled_ns;  // because of a ceiling
  uint64_t held_ns;       // … and the session was held (HoldSession), or for a quiet moment
};

// How many of something took how long. counts[i]: those that took at most kHistogramBoundsNs[i], and more than the
// bound before; the last one's have no bound. Since 3.3, as WorkCounts.
inline constexpr uint64_t kHistogramBoundsNs[] = {
    10'000,     50'000,     100'000,     500'000,     1'000'000,     5'000'000,
    10'000'000, 50'000'000, 100'000'000, 500'000'000, 1'000'000'000, 10'000'000'000};
inline constexpr size_t kHistogramCounts = sizeof(kHistogramBoundsNs) / sizeof(uint64_t) + 1;
struct Histogram {
  uint64_t counts[kHistogramCounts];
  uint64_t sum_ns;
};

// What sessions have given the device to do since they began.
struct WorkCounts {
  uint64_t batches;  // groups of launches that were submitted together
  // Without those in the program's graphs.
  uint64_t copies_to_device;
  uint64_t copies_from_device;
  uint64_t copies_on_device;
  uint64_t bytes_to_device;
  uint64_t bytes_from_device;
  uint64_t bytes_on_device;
  Histogram queue;  // each time that waiting work of a session was let go: how long it had waited
  Histogram throttled;   // the same, of those that a ceiling kept: how long it did
  Histogram completion;  // from the submission of kernels to the GPU until they are seen complete
};

// Why a session ended that its program did not end.
enum class Fault : uint32_t {
  kBrokeProtocol,  // it violated the wire protocol
  kLostDevice,     // the context was lost, most likely by its work
  kDidNotDrain,    // its work did not end in time
  kLostExecutor,   // its executor ended otherwise, mostly by another's fault
  kLongKernel,     // a kernel of its ran for longer than KernelTerms::end_after_ms; since 3.4
};
inline constexpr uint32_t kFaults = 5;

}  // namespace gpuloom::control
