// SPDX-License-Identifier: Apache-2.0
// A hard ceiling on a share of the device's time (timeShareMax): a token bucket. Time flows in at
// `permille` of the clock and is taken out as it is measured, so in any span of L the device works at most
//
//   permille/1000 x (L + window) + what was in flight when the bucket ran empty
//
// for its owner. The last term is at most one order, or one kernel that is longer than an order: it cannot be cut, but
// what is overdrawn must flow in before the next one goes. A bucket begins full.
//
// Plain value, one thread; `now_ns` is any clock, and one that goes back adds nothing. Nothing fails: a permille out of
// range is clamped. Tokens are nanoseconds of the device times 1,000, so that nothing is rounded.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuloom::arbiter {

inline constexpr uint32_t kNoCeilingPermille = 1000;
// What may be saved up: enough for a request to an inference server, but so little that the use of one second looks
// like that of the next.
inline constexpr uint64_t kCeilingWindowNs = 100'000'000;

class Ceiling {
 public:
  Ceiling(uint32_t permille, uint64_t window_ns, uint64_t now_ns)
      : permille_(Valid(permille)), window_ns_(window_ns), refilled_ns_(now_ns), tokens_(Full()) {}

  // What was overdrawn under the old ceiling stays overdrawn; what was saved is cut to the new window.
  void Change(uint32_t permille, uint64_t now_ns) {
    Refill(now_ns);
    permille_ = Valid(permille);
    tokens_ = std::min(tokens_, Full());
  }

  void Refill(uint64_t now_ns) {
    if (now_ns <= refilled_ns_) return;
    // A longer time fills the bucket in any case, and with this bound no product overflows.
    const uint64_t passed_ns = std::min(now_ns - refilled_ns_, kLongestRefillNs);
    refilled_ns_ = now_ns;
    tokens_ = std::min(Full(), tokens_ + static_cast<int64_t>(passed_ns * permille_));
  }

  void Take(uint64_t charge_ns) {
    tokens_ -= static_cast<int64_t>(std::min(charge_ns, kLongestChargeNs) * 1000);
    tokens_ = std::max(tokens_, -kDeepest);
  }

  // True when nothing more may be submitted. `in_flight_ns`: the predicted time of what is in flight.
  bool Empty(uint64_t in_flight_ns) const { return Left(in_flight_ns) <= 0; }

  // The first moment at which Empty becomes false without any event.
  uint64_t OpensAtNs(uint64_t in_flight_ns) const {
    const int64_t left = Left(in_flight_ns);
    return left > 0 ? refilled_ns_ : refilled_ns_ + static_cast<uint64_t>(-left) / permille_ + 1;
  }

  // What has been taken has all flowed in again, so that a new bucket would be no better.
  bool Full(uint64_t now_ns) const {
    Ceiling refilled = *this;
    refilled.Refill(now_ns);
    return refilled.tokens_ == Full();
  }

  uint32_t permille() const { return permille_; }

 private:
  static constexpr uint64_t kLongestRefillNs = uint64_t{1} << 52;  // 52 days; x 1,000 < 2^63
  static constexpr uint64_t kLongestChargeNs = uint64_t{1} << 50;
  static constexpr int64_t kDeepest = int64_t{1} << 61;

  static uint32_t Valid(uint32_t permille) { return std::clamp(permille, 1u, kNoCeilingPermille); }
  int64_t Full() const { return static_cast<int64_t>(window_ns_ * permille_); }
  int64_t Left(uint64_t in_flight_ns) const {
    return tokens_ - static_cast<int64_t>(std::min(in_flight_ns, kLongestChargeNs) * 1000);
  }

  uint32_t permille_;
  uint64_t window_ns_;
  uint64_t refilled_ns_;
  int64_t tokens_;
};

}  // namespace gpuloom::arbiter
