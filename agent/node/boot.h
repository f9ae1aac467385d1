// SPDX-License-Identifier: Apache-2.0
// Which boot of the machine this is, and how long it has lasted: what a time that outlives processes, but not the machine, is
// measured by. Safe from any thread; nothing fails.
#pragma once

#include <chrono>
#include <string>

namespace gpuloom {

// A random UUID that the kernel makes at each boot.
std::string BootId();

// Suspended time included: CLOCK_MONOTONIC stands still while the machine is suspended.
std::chrono::milliseconds SinceBoot();

}  // namespace gpuloom
