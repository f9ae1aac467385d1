// SPDX-License-Identifier: Apache-2.0
// What a policy grants an allocation's container: memory, trust domain, and all terms (share_terms.h). Pure; safe from any
// thread.
#pragma once

#include <string>

#include "agent/identity/allocation.h"
#include "agent/policy/capacity.h"
#include "agent/policy/policy.h"

namespace gpuloom {

// Sets what the binding's owner gets for the allocation's slots on the GPU of this capacity.
void SetGrant(const Capacity& capacity, const Policy& policy, const Allocation& allocation,
              Binding* binding);

// For logs and errors.
std::string Describe(const PodContainer& owner);

}  // namespace gpuloom
