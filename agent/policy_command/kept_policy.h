// SPDX-License-Identifier: Apache-2.0
// The policy that is in force on this node, as its agent keeps it (agent/policy/policy_file.h). Reads that file; one
// thread.
#pragma once

#include <optional>
#include <string>

namespace gpuloom {

struct KeptPolicy {
  std::string path;
  std::optional<std::string> text;
  std::string since;    // when it came into force, as RFC 3339 has it
  std::string trouble;  // why there is no text
};

KeptPolicy ReadKeptPolicy(const std::string& state_dir);

// An error: an agent has kept it, and none is in charge now that would obey it or take another. Empty: one is, or none ever was.
std::string LackOfAgent(const std::string& state_dir);

}  // namespace gpuloom
