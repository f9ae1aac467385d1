// SPDX-License-Identifier: Apache-2.0
// Pseudo-random numbers that are the same for the same seed everywhere (splitmix64). Plain value,
// one thread; a copy goes on with the same numbers. Nothing fails. Not for secrets.
#pragma once

#include <cmath>
#include <cstdint>

namespace gpuloom::simulator {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  uint64_t Below(uint64_t bound) { return bound == 0 ? 0 : Next() % bound; }
  uint64_t Between(uint64_t least, uint64_t most) { return least + Below(most - least + 1); }
  // Times between independent events, with this mean.
  uint64_t Exponential(uint64_t mean) {
    const double uniform = (static_cast<double>(Next() >> 11) + 0.5) / 9007199254740992.0;
    return static_cast<uint64_t>(-std::log(uniform) * static_cast<double>(mean));
  }

 private:
  uint64_t state_;
};

}  // namespace gpuloom::simulator
