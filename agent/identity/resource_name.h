// SPDX-License-Identifier: Apache-2.0
// What pods ask for: single slots ("gpuloom.io/gpu"), or a shape, so many slots of one GPU at once
// ("gpuloom.io/gpu-x4"). Pure; safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace gpuloom {

// `shape`: how many slots one of it is; 1: the single slots themselves.
std::string ResourceNameOf(const std::string& slots_name, int shape);

// Also of a shape that this agent does not offer, which an earlier one may have.
bool IsOurResource(std::string_view name, std::string_view slots_name);

}  // namespace gpuloom
