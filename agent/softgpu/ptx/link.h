// SPDX-License-Identifier: Apache-2.0
// Links PTX texts into one text with the contents of all. A name that is private to its text (no .visible, .weak or
// .extern) and also used in another one is renamed; the rest is resolved when the result is loaded. Pure.
#pragma once

#include <span>
#include <string>

namespace gpuloom::softgpu::ptx {

[[nodiscard]] std::string Link(std::span<const std::string> texts);

}  // namespace gpuloom::softgpu::ptx
