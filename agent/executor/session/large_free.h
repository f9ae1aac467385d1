// SPDX-License-Identifier: Apache-2.0
// Frees large buffers on a separate thread: returning a gigabyte to the system takes about 50 ms, which the ring thread
// must not spend for one tenant. Safe from any thread; small buffers are freed at once.
#pragma once

#include <cstdint>
#include <vector>

namespace gpuloom::executor {

void FreeElsewhere(std::vector<uint8_t> bytes);

}  // namespace gpuloom::executor
