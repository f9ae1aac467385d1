// SPDX-License-Identifier: Apache-2.0
// One function for each kind of question about a policy. Show and Simulate read the files that the command names; the others
// are pure. All are safe from any thread.
#pragma once

#include <optional>

#include "agent/policy/policy.h"
#include "agent/policy/policy_mistakes.h"
#include "agent/policy_command/policy_command.h"

namespace gpuloom {

// nullopt: the file is not a policy; `mistakes` says why.
Answer Check(const PolicyCommand& command, const std::optional<Policy>& policy,
             const PolicyMistakes& mistakes);
Answer Explain(const PolicyCommand& command, const Policy& policy);
Answer Simulate(const PolicyCommand& command, const Policy& policy);

// Reads the policy that an agent keeps, and the policy's file.
Answer Show(const PolicyCommand& command);

}  // namespace gpuloom
