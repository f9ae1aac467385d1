// SPDX-License-Identifier: Apache-2.0
// PTX text → ModuleTree. Checks only the grammar: names, types and opcodes are the decoder's. Pure.
// The text must outlive the tree.
#pragma once

#include <string>
#include <string_view>

#include "agent/softgpu/ptx/syntax.h"

namespace gpuloom::softgpu::ptx {

// Limits against hostile texts; nvcc's output stays far below them.
inline constexpr uint32_t kMaxExpressionDepth = 32;
inline constexpr uint32_t kMaxScopeDepth = 64;
inline constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 36;

// False, with "ptx line 7: …" in *error, when the text is not PTX that softgpu understands.
[[nodiscard]] bool Parse(std::string_view text, ModuleTree* tree, std::string* error);

}  // namespace gpuloom::softgpu::ptx
