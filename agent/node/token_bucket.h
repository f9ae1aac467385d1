// SPDX-License-Identifier: Apache-2.0
// A token bucket, full at first: allows `capacity` actions at once, then one per refill period. A value; one thread
// at a time. Time is an argument, of any clock that does not run backwards.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace gpuloom {

class TokenBucket {
 public:
  // `capacity` and `refill` are above 0.
  constexpr TokenBucket(uint32_t capacity, std::chrono::nanoseconds refill)
      : capacity_(capacity), refill_ns_(static_cast<uint64_t>(refill.count())), tokens_(capacity) {}

  // Returns false if there is no token.
  [[nodiscard]] bool Take(uint64_t now_ns) {
    const uint64_t refills = (now_ns - std::min(now_ns, since_ns_)) / refill_ns_;
    if (refills >= capacity_ - tokens_) {
      tokens_ = capacity_;
      since_ns_ = now_ns;
    } else {
      tokens_ += static_cast<uint32_t>(refills);
      since_ns_ += refills * refill_ns_;
    }
    if (tokens_ == 0) return false;
    --tokens_;
    return true;
  }

  // Whether it is full again, like a new one.
  bool IsFull(uint64_t now_ns) const {
    return (now_ns - std::min(now_ns, since_ns_)) / refill_ns_ >= capacity_ - tokens_;
  }

 private:
  uint32_t capacity_;
  uint64_t refill_ns_;
  uint32_t tokens_;
  uint64_t since_ns_ = 0;
};

}  // namespace gpuloom
