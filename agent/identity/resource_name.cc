// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/resource_name.h"

#include <algorithm>

namespace gpuloom {
namespace {

constexpr std::string_view kShape = "-x";

}  // namespace

std::string ResourceNameOf(const std::string& slots_name, int shape) {
  return shape == 1 ? slots_name : slots_name + std::string(kShape) + std::to_string(shape);
}

bool IsOurResource(std::string_view name, std::string_view slots_name) {
  // Not every name that begins so is ours: "gpuloom.io/gpu-memory" would be somebody else's.
  if (!name.starts_with(slots_name)) return false;
  name.remove_prefix(slots_name.size());
  if (name.empty()) return true;
  if (!name.starts_with(kShape)) return false;
  name.remove_prefix(kShape.size());
  return !name.empty() && name.front() != '0' &&
         std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace gpuloom
