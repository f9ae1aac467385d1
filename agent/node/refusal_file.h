// SPDX-License-Identifier: Apache-2.0
// What a node's agent has refused the kubelet, as a file in the state directory that outlives the agent: written by it, read
// by `gpuloom refusals`. Safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuloom {

struct KnownRefusal {
  std::string call;    // the kubelet's
  std::string reason;  // one line
  uint64_t times = 0;
  int64_t last_unix_s = 0;
  bool operator==(const KnownRefusal&) const = default;
};

std::string RefusalPath(const std::string& state_directory);
std::string FormatRefusals(const std::vector<KnownRefusal>& refusals);
// As they were written; none if there is no such file, or it cannot be read.
std::vector<KnownRefusal> ReadRefusals(const std::string& state_directory);

}  // namespace gpuloom
