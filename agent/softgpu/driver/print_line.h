// SPDX-License-Identifier: Apache-2.0
// All output of this library: lines on stderr. Safe from any thread.
#pragma once

#include <string_view>

namespace gpuloom::softgpu {

// Prints "softgpu: <line>", unless GPULOOM_SOFTGPU_QUIET=1.
void PrintLine(std::string_view line);

}  // namespace gpuloom::softgpu
