// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/grant.h"

#include "agent/cat.h"
#include "agent/plugin/share_terms.h"
#include "agent/plugin/slot_use.h"
#include "agent/policy/settings.h"

namespace gpuloom {

void SetGrant(const Capacity& capacity, const Policy& policy, const Allocation& allocation,
              Binding* binding) {
  const PodContainer& owner = binding->owner;
  // "auto" is what a slot was when the allocation was made, not what it would be of today's --slots
  // and --reserve: the rest of the GPU's memory was promised on those terms.
  const Grant grant = Decide(policy, capacity, owner.pod_namespace, owner.pod);
  const bool is_auto = SettingsOfNamespace(policy, owner.pod_namespace).memory.value.is_auto;
  binding->trust_domain = grant.trust_domain;
  binding->quota_bytes = (is_auto ? AutoSlotBytesOf(allocation, capacity) : grant.slot_bytes) *
                         SlotsOf(allocation).size();
  binding->shares = ShareTermsOf(policy, owner);
  binding->kernels = KernelTermsOf(policy, owner);
  binding->partition = PartitionTermsOf(policy, owner);
  binding->memory_wait_ms =
      1000 *
      SettingsOfPod(policy, owner.pod_namespace, owner.pod, owner.container).memory_wait_s.value;
  binding->trace = TraceTermsOf(policy, owner);
  binding->rescue_after_ms = RescueAfterMsOf(policy, owner);
}

std::string Describe(const PodContainer& owner) {
  return Cat("pod ", owner.pod_namespace, "/", owner.pod,
             owner.container.empty() ? " (init container)" : ", container ", owner.container);
}

}  // namespace gpuloom
