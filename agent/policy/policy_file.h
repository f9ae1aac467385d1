// SPDX-License-Identifier: Apache-2.0
// The bytes of a policy file. Blocks as long as the file's reads do; nothing is kept.
#pragma once

#include <optional>
#include <string>

namespace gpuloom {

// In the agent's state folder: the last good policy, sealed (sealed_text.h).
inline constexpr char kKeptPolicyName[] = "last-good-policy.yaml";

// Who runs on must not wait for a pipe's other end; who checks a policy may be given one. What an agent keeps
// (kKeptPolicyName) is a file, and its seal may make it longer.
enum class PolicySource { kFile, kAnything, kKept };

// nullopt with a message that names the path: it cannot be read, is not a file, or is larger than a ConfigMap can be.
[[nodiscard]] std::optional<std::string> ReadPolicyFile(const std::string& path,
                                                        PolicySource source, std::string* error);

}  // namespace gpuloom
