// SPDX-License-Identifier: Apache-2.0
// How many processors this process may use. Keeps no state; safe from any thread.
#pragma once

#include <cstdint>

namespace gpuloom {

// The minimum of what the calling thread may run on and what the container's cgroup grants, rounded up; at least 1.
// Opens files: call it once.
uint32_t CountProcessors();

// A cgroup's cpu.max ("200000 100000", "max 100000") as a number of processors, rounded up, or 0 if it sets no limit
// or is not understood.
uint32_t ProcessorsOfCpuMax(const char* text);

}  // namespace gpuloom
