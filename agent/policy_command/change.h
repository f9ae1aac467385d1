// SPDX-License-Identifier: Apache-2.0
// `gpuloom policy diff`: what a policy file would change of the policy in force here, and for which running tenants.
// Reads that file and the policy that an agent keeps; the caller finds out who runs. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/policy/policy.h"
#include "agent/policy_command/policy_command.h"

namespace gpuloom {

// A container that has slots of a GPU.
struct RunningTenant {
  std::string pod_namespace;
  std::string pod;
  std::string container;
  size_t gpu = 0;  // of Running::gpus
  uint32_t slots = 0;
  uint64_t memory_used_bytes = 0;
  uint64_t memory_quota_bytes = 0;
};

struct RunningGpu {
  Capacity capacity;
  uint64_t promised_bytes = 0;  // to the holders of slots
};

struct Running {
  std::vector<RunningGpu> gpus;
  std::vector<RunningTenant> tenants;
  std::vector<std::string> troubles;  // what could not be found out, and why
};

// kGood: nothing changes. kNotGood: something does, or no agent is in charge, as `trouble` says. kMistake: the answer is not the whole one, or there is none, as `trouble`
// says.
Answer AnswerAboutChange(const PolicyCommand& command, const Running& running);

}  // namespace gpuloom
