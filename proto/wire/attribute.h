// SPDX-License-Identifier: Apache-2.0
// How both sides say that there is no attribute: of a device (session.h), of a kernel (kernel_commands.h).
#pragma once

#include <cstdint>

namespace gpuloom::wire {

// Where the driver has none.
inline constexpr int32_t kNoAttribute = INT32_MIN;

}  // namespace gpuloom::wire
