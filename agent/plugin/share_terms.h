// SPDX-License-Identifier: Apache-2.0
// What a policy grants one container of the GPU's time and of traces, in the form that schedulers receive. Pure; safe
// from any thread.
#pragma once

#include "agent/identity/allocation.h"
#include "agent/policy/policy.h"
#include "proto/control/messages.h"

namespace gpuloom {

control::ShareTerms ShareTermsOf(const Policy& policy, const PodContainer& owner);
control::PartitionTerms PartitionTermsOf(const Policy& policy, const PodContainer& owner);
control::KernelTerms KernelTermsOf(const Policy& policy, const PodContainer& owner);
// As in control::BindAllocation.
uint32_t RescueAfterMsOf(const Policy& policy, const PodContainer& owner);
control::TraceTerms TraceTermsOf(const Policy& policy, const PodContainer& owner);

}  // namespace gpuloom
