// SPDX-License-Identifier: Apache-2.0
// Which reservations of multiprocessors (smReserved) a GPU cannot keep, by the executors' own arithmetic
// (agent/arbiter/sm_division.h). Pure; safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "agent/arbiter/sm_division.h"
#include "agent/policy/policy.h"
#include "agent/policy/settings.h"

namespace gpuloom {

struct UnkeptReservations {
  // Never kept on such a GPU: programs with them are refused even where they are alone.
  std::vector<ImpossibleRule> errors;
  // Not kept beside one another: of namespaces that share a trust domain, where containers of all of them are on one
  // GPU, the last to come is refused.
  std::vector<std::string> warnings;
};

// Each key once. As ImpossibleRules, it judges the namespaces and pods that the file's own names and globs show. A GPU that
// cannot be divided has none.
UnkeptReservations FindUnkeptReservations(const Policy& policy, const arbiter::SmLayout& gpu);

}  // namespace gpuloom
