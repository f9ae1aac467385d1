// SPDX-License-Identifier: Apache-2.0
// How long the last waits of one kind lasted, so that a thread that polls while it waits can sleep through most of
// the next one: a program that does the same step again and again waits for about as long each time.
//
// Times are in nanoseconds. Safe from any thread; two that note at the same moment may lose one of the two.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace gpuloom {

class WaitHistory {
 public:
  // A wait that is over sooner than any before is noticed this much too late at most, and never later than twice
  // as long as it was.
  static constexpr int64_t kLongestSleepNs = 1'000'000;
  static constexpr size_t kWaits = 8;

  // Waits shorter than `shortest_ns` are not noted, and of every wait so much is spent awake: to sleep would cost more
  // than it saves. A sleep ends `wake_ns` early, which is how late the kernel's timers are, and none is shorter.
  constexpr WaitHistory(int64_t shortest_ns, int64_t wake_ns)
      : shortest_ns_(shortest_ns), wake_ns_(wake_ns) {}

  // Adds a wait that was still going on after `went_on_ns` and over after `over_ns`: the last two checks, between which
  // the thread may have slept.
  void Note(int64_t went_on_ns, int64_t over_ns) {
    if (over_ns < shortest_ns_) return;
    Wait& wait = waits_[next_.fetch_add(1, std::memory_order_relaxed) % kWaits];
    wait.went_on_ns.store(went_on_ns, std::memory_order_relaxed);
    wait.over_ns.store(over_ns, std::memory_order_relaxed);
  }

  // How long a thread that has waited for `waited_ns` may sleep before it checks again; 0: it should stay awake. What
  // it waits for may be there earlier only if this wait is an eighth shorter than all of the last eight that were as
  // long.
  int64_t SleepNs(int64_t waited_ns) const {
    const int64_t expected_ns = ExpectedNs(waited_ns);
    if (expected_ns == 0) return 0;
    const int64_t left_ns = expected_ns - expected_ns / 8 - waited_ns;
    const int64_t sleep_ns = std::min({left_ns - wake_ns_, waited_ns, kLongestSleepNs});
    return sleep_ns < wake_ns_ ? 0 : sleep_ns;
  }

  // For a thread that sleeps in the last eighth, too, for `sleep_ns` at a time: how long it may, so that it is awake when the
  // wait ends if that is as long as the shortest that it is like, or longer by at most `sleep_ns`, or no longer than the
  // longest that it is like, which a kernel that takes a few per cent more or less each time needs.
  int64_t ShortenNs(int64_t waited_ns, int64_t sleep_ns) const {
    const int64_t expected_ns = ExpectedNs(waited_ns);
    if (expected_ns == 0) return sleep_ns;
    if (waited_ns - expected_ns > sleep_ns) return waited_ns < LatestNs(expected_ns) ? 0 : sleep_ns;
    const int64_t shorter_ns = std::min(sleep_ns, (expected_ns - waited_ns) / 2 - wake_ns_);
    return shorter_ns < wake_ns_ ? 0 : shorter_ns;
  }

 private:
  // The longest of those that were at most a thirty-second longer than that.
  int64_t LatestNs(int64_t expected_ns) const {
    int64_t latest_ns = 0;
    for (const Wait& wait : waits_) {
      const int64_t over_ns = wait.over_ns.load(std::memory_order_relaxed);
      if (over_ns <= expected_ns + expected_ns / 32) latest_ns = std::max(latest_ns, over_ns);
    }
    return latest_ns;
  }

  // The shortest of those that were at least as long as this one is, or almost; 0: nothing is known.
  int64_t ExpectedNs(int64_t waited_ns) const {
    if (waited_ns < shortest_ns_) return 0;
    int64_t expected_ns = INT64_MAX;
    for (const Wait& wait : waits_) {
      const int64_t over_ns = wait.over_ns.load(std::memory_order_relaxed);
      if (over_ns == 0) return 0;  // too few to tell
      // Those that this wait has outlasted say nothing about its rest.
      if (over_ns < waited_ns - waited_ns / 8) continue;
      expected_ns = std::min(expected_ns, wait.went_on_ns.load(std::memory_order_relaxed));
    }
    return expected_ns == INT64_MAX ? 0 : expected_ns;
  }

  struct Wait {
    std::atomic<int64_t> went_on_ns{0};
    std::atomic<int64_t> over_ns{0};
  };

  const int64_t shortest_ns_;
  const int64_t wake_ns_;
  std::array<Wait, kWaits> waits_;
  std::atomic<uint32_t> next_{0};
};

}  // namespace gpuloom
