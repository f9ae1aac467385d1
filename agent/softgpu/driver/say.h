// SPDX-License-Identifier: Apache-2.0
// The one way in which this library speaks: a line on stderr. Safe from any thread.
#pragma once

#include <string_view>

namespace gpuloom::softgpu {

// Prints "softgpu: <line>", unless GPULOOM_SOFTGPU_QUIET=1.
void Say(std::string_view line);

}  // namespace gpuloom::softgpu
