// SPDX-License-Identifier: Apache-2.0
// The requests of the kubelet that a node's agent has refused: a file in the state directory that outlives the agent,
// which writes it; `gpuloom refusals` reads it. Safe from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpuloom {

struct KnownRefusal {
  std::string call;    // of the device-plugin API
  std::string reason;  // one line
  uint64_t times = 0;
  int64_t last_unix_s = 0;         // of the agent's clock
  std::string pod_namespace = {};  // empty: not known
  bool operator==(const KnownRefusal&) const = default;
};

std::string RefusalPath(const std::string& state_directory);
std::string FormatRefusals(const std::vector<KnownRefusal>& refusals);
// In the order of the file; empty if there is no such file, or it is damaged. nullopt: it cannot be read now, and may be
// whole; *error then says why.
std::optional<std::vector<KnownRefusal>> ReadRefusals(const std::string& state_directory,
                                                      std::string* error);

}  // namespace gpuloom
