// SPDX-License-Identifier: Apache-2.0
// Reads the bytes of a policy file. Blocks as long as the file's reads do; keeps no state; safe from any thread.
#pragma once

#include <optional>
#include <string>

namespace gpuloom {

// In the agent's state folder: the last good policy, sealed (sealed_text.h).
inline constexpr char kKeptPolicyName[] = "last-good-policy.yaml";

// kFile refuses pipes, because a program that must go on running must not wait for a pipe's other end; kAnything is for
// commands that check a policy. kKept is what an agent keeps (kKeptPolicyName): a file, which its seal makes longer.
enum class PolicySource { kFile, kAnything, kKept };

// nullopt with a message that names the path if it cannot be read, is not a file, or is larger than a ConfigMap can be.
[[nodiscard]] std::optional<std::string> ReadPolicyFile(const std::string& path,
                                                        PolicySource source, std::string* error);

}  // namespace gpuloom
