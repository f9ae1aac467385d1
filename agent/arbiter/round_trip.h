// SPDX-License-Identifier: Apache-2.0
// The latency of a launch on an idle device: the time from submission until completion is seen,
// less the device's own work. Learned from launches that are timed from time to time, by the device
// and by the host.
//
// It is the median of recent samples, so that single launches that were delayed in the driver or on
// their way back do not count. A tenant can raise it only by work whose completion is seen late,
// and kMostNs bounds what it gains by that.
//
// Plain value, owned by TimeSharing; the executor's ring thread only. Nothing fails. Times are nanoseconds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpuloom::arbiter {

class RoundTrip {
 public:
  // A larger sample measures something else: the thread was not running, or slept. On an H100 the
  // latency is 8 to 12 µs.
  static constexpr uint64_t kMostNs = 20'000;
  // The completion of longer work is seen later, because it is not polled for all the time.
  static constexpr uint64_t kLongestNs = 200'000;

  // The time between the two events around a launch includes what the device does for them and for
  // starting the kernel: on an H100, kernels of 90 µs that were waited for were charged 2.1 µs more
  // than CUPTI measured.
  static constexpr uint64_t kEventsNs = 2'000;

  // Returns true if a launch to an idle device is to be timed, and counts it as such.
  bool Take(uint64_t now_ns);
  // `seen_ns`: the time from submission until the completion was seen; `timed_ns`: the part of it
  // between the device's events around the launch.
  void Learn(uint64_t seen_ns, uint64_t timed_ns);
  // 0 before enough is known.
  uint64_t ns() const { return ns_; }

 private:
  static constexpr size_t kKept = 15;
  static constexpr size_t kEnough = 5;
  // Timing a launch costs some three microseconds.
  static constexpr uint64_t kEveryNs = 100'000'000;
  static constexpr uint64_t kEveryAtFirstNs = 2'000'000;

  std::array<uint64_t, kKept> seen_{};
  size_t learned_ = 0;
  uint64_t next_ns_ = 0;
  uint64_t ns_ = 0;
};

}  // namespace gpuloom::arbiter
