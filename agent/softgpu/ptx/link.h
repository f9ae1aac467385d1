// SPDX-License-Identifier: Apache-2.0
// Linking PTX texts: one text that says what all of them say. What a text keeps to itself (no .visible,
// .weak or .extern) and another names as well is renamed; the rest is resolved when it is loaded.
// Pure functions without state.
#pragma once

#include <span>
#include <string>

namespace gpuloom::softgpu::ptx {

[[nodiscard]] std::string Link(std::span<const std::string> texts);

}  // namespace gpuloom::softgpu::ptx
