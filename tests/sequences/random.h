// SPDX-License-Identifier: Apache-2.0
// Numbers that a seed alone decides, the same on every machine. One thread's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpuloom::sequences {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  // 0 … n - 1; n is not 0.
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(Next() % n); }
  uint32_t Between(uint32_t least, uint32_t most) { return least + Below(most - least + 1); }
  bool Chance(uint32_t percent) { return Below(100) < percent; }
  template <typename T>
  T Of(const std::vector<T>& values) {
    return values[Below(static_cast<uint32_t>(values.size()))];
  }

  // The seed of something numbered within something that has a seed.
  static uint64_t Derive(uint64_t seed, uint64_t number) {
    return Random(seed * 0x2545f4914f6cdd1d + number).Next();
  }

 private:
  uint64_t state_;
};

}  // namespace gpuloom::sequences
