// SPDX-License-Identifier: Apache-2.0
// What a piece of code costs, counted and not timed: the processor is told to stop after each
// instruction of a child's thread. The same on every machine and under any load, without hardware
// counters; only x86-64 on Linux, and only where a process may trace its child.
//
// The child marks what is to be counted with Mark() before and after; everything else runs at full
// speed, and so do the child's other threads.
//
//   StepChild([](Shared& shared) { …; Mark(); Work(); Mark(); }, &costs, &error);
//
// From one thread. No sanitizer: their code would be counted too.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gpuloom::bench {

struct Cost {
  uint64_t instructions = 0;
  uint64_t system_calls = 0;
  uint64_t allocations = 0;  // entries into malloc, free and their like
};

// Both processes see it.
struct Shared {
  // Functions that allocate or release memory; the child fills it before its first Mark.
  std::array<uint64_t, 8> allocators{};
};

inline void Mark() { asm volatile("int3" ::: "memory"); }

// Runs `child` in a child process and counts between each two of its marks. False with a message
// when it cannot be traced, or ends otherwise than by returning.
[[nodiscard]] bool StepChild(const std::function<void(Shared&)>& child, std::vector<Cost>* costs,
                             std::string* error);

}  // namespace gpuloom::bench
