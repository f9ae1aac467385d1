// SPDX-License-Identifier: Apache-2.0
// How long a program thinks: the time from the end of its last work to its next command. A program that does the same step
// again and again, as a server of a language model, thinks for about as long each time, so a thread that sleeps meanwhile
// can be awake when the command comes: to be woken takes it as long as some fifteen kernels.
//
// Plain value, a member of the session, no clock and no I/O; one thread. Nothing fails. Nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace gpuloom::executor {

class ThinkTimes {
 public:
  // Shorter times are not noted, because they are spun through (Loop::kSpinNs), nor longer ones, for which it is no matter
  // that the thread has to be woken.
  static constexpr int64_t kShortestNs = 200'000;
  static constexpr int64_t kLongestNs = 10'000'000;
  static constexpr size_t kTimes = 8;
  // Of these, so many must be alike.
  static constexpr size_t kAlike = 5;
  // Alike are those within this, and within a quarter of the shortest: so much is spent awake.
  static constexpr int64_t kAlikeWithinNs = 100'000;
  // A time noted by a thread that had to be woken is too long by about half of the first.
  static constexpr int64_t kEarlyNs = 80'000;
  static constexpr int64_t kLateNs = 20'000;

  void Note(int64_t ns) {
    if (ns < kShortestNs || ns > kLongestNs) return;
    times_[next_++ % kTimes] = ns;
    FindAlike();
  }

  // For how long a program that has thought for `thought_ns` is not expected to send its next command. 0: it is expected now;
  // negative: nobody knows, or it is overdue.
  int64_t UntilExpectedNs(int64_t thought_ns) const {
    if (thought_ns > until_ns_) return -1;
    return std::max<int64_t>(0, from_ns_ - thought_ns);
  }

 private:
  // The most that are alike, and of as many the shortest.
  void FindAlike() {
    std::array<int64_t, kTimes> sorted = times_;
    std::ranges::sort(sorted);
    size_t most = kAlike - 1;
    from_ns_ = until_ns_ = -1;
    for (size_t first = 0; first + most < kTimes; ++first) {
      if (sorted[first] == 0) continue;  // too few so far
      const int64_t apart_ns = std::min(kAlikeWithinNs, sorted[first] / 4);
      size_t last = first + most;
      if (sorted[last] - sorted[first] > apart_ns) continue;
      while (last + 1 < kTimes && sorted[last + 1] - sorted[first] <= apart_ns) ++last;
      most = last - first + 1;
      from_ns_ = sorted[first] - kEarlyNs;
      until_ns_ = sorted[last] + kLateNs;
    }
  }

  std::array<int64_t, kTimes> times_{};
  size_t next_ = 0;
  int64_t from_ns_ = -1;
  int64_t until_ns_ = -1;
};

}  // namespace gpuloom::executor
