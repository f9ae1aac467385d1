// SPDX-License-Identifier: Apache-2.0
// Frees large buffers on a thread of its own: giving a gigabyte back to the system takes some 50 ms, which
// the ring thread must not spend for one tenant. From any thread; what is small is freed at once.
#pragma once

#include <cstdint>
#include <vector>

namespace gpuloom::executor {

void FreeElsewhere(std::vector<uint8_t> bytes);

}  // namespace gpuloom::executor
