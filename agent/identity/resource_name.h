// SPDX-License-Identifier: Apache-2.0
// Names of the resources that pods request: single slots ("gpuloom.io/gpu"), or a shape, several slots of one GPU
// ("gpuloom.io/gpu-x4"). Pure; safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace gpuloom {

// `shape`: the number of slots of one unit; 1: single slots.
std::string ResourceNameOf(const std::string& slots_name, int shape);

// True also for a shape that this agent does not offer: an earlier agent may have offered it.
bool IsOurResource(std::string_view name, std::string_view slots_name);

}  // namespace gpuloom
