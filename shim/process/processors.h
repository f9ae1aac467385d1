// SPDX-License-Identifier: Apache-2.0
// How many processors this process may use.
#pragma once

#include <cstdint>

namespace gpuloom {

// The least of what the calling thread may run on and what the container's cgroup grants, rounded
// up; at least 1. Opens files: to be asked once.
uint32_t CountProcessors();

// A cgroup's cpu.max ("200000 100000", "max 100000"): how many processors that is, rounded up, or 0 where it sets no
// limit or says nothing that we understand.
uint32_t ProcessorsOfCpuMax(const char* text);

}  // namespace gpuloom
