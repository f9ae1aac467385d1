// SPDX-License-Identifier: Apache-2.0
// For tests: time that passes without anybody waiting for it. passing_time.cc takes the place of libc's clock_gettime in the
// test's process, also for libraries that it loads. Clocks that count processor time do not follow, nor does the kernel: who
// waits until a time of the clock waits longer by what has passed so.
#pragma once

#include <chrono>

namespace gpuloom {

// Safe from any thread; time stays ahead.
void PassTime(std::chrono::nanoseconds time);

}  // namespace gpuloom
