// SPDX-License-Identifier: Apache-2.0
// The device for the executor's tests, and the addresses at which they place sessions in this process.
#pragma once

#include <cstdint>

namespace gpuloom::executor {

class Device;

inline constexpr uint64_t kTestingDeviceBegin = 0x5000'0000'0000;
// Used neither by programs nor by sanitizers (AddressSanitizer's heap is at 0x6000'…).
inline constexpr uint64_t kTestingHostBegin = 0x5670'0000'0000;

// Starts it on its driver's first GPU. If that fails it is a bug of the test, which ends.
void StartFirst(Device* device);

}  // namespace gpuloom::executor
