// SPDX-License-Identifier: Apache-2.0
// The device that an executor's tests run on, and where in this process they put sessions.
#pragma once

#include <cstdint>

#include "agent/executor/device/device.h"

namespace gpuloom::executor {

inline constexpr uint64_t kTestingDeviceBegin = 0x5000'0000'0000;
// Where neither programs nor sanitizers put anything (AddressSanitizer's heap is at 0x6000'…).
inline constexpr uint64_t kTestingHostBegin = 0x5670'0000'0000;

// Starts it on its driver's first GPU. A device that does not start is a bug of the test, and ends it.
void StartFirst(Device* device);

}  // namespace gpuloom::executor
