// SPDX-License-Identifier: Apache-2.0
// One function for each kind of question, about a policy that has been read. Pure; safe from any thread.
#pragma once

#include "agent/policy/policy.h"
#include "agent/policy_command/policy_command.h"

namespace gpuloom {

PolicyAnswer Check(const PolicyCommand& command, const Policy& policy);
PolicyAnswer Explain(const PolicyCommand& command, const Policy& policy);
PolicyAnswer Simulate(const PolicyCommand& command, const Policy& policy);

}  // namespace gpuloom
