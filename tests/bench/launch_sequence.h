// SPDX-License-Identifier: Apache-2.0
// Random numbers, and launches that do not repeat. Pure; the same from the same seed on every machine. From one thread.
#pragma once

#include <cstdint>

namespace gpuloom::bench {

// splitmix64: the library's distributions differ between implementations.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e37'79b9'7f4a'7c15;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58'476d'1ce4'e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d0'49bb'1331'11eb;
    return mixed ^ (mixed >> 31);
  }

 private:
  uint64_t state_;
};

// Function, blocks and arguments drawn anew for each launch; no argument comes twice. Tenants of one trust domain share
// what an executor has learnt, so each process and each thread needs a seed of its own.
class LaunchSequence {
 public:
  struct Step {
    uint32_t function;  // below 8
    uint32_t blocks;    // 1 to 4
    uint64_t argument;
  };

  explicit LaunchSequence(uint64_t seed) : random_(seed) {}

  Step Next() {
    const uint64_t drawn = random_.Next();
    return {static_cast<uint32_t>(drawn >> 61), 1 + static_cast<uint32_t>(drawn >> 59 & 3), drawn};
  }

 private:
  Random random_;
};

}  // namespace gpuloom::bench
