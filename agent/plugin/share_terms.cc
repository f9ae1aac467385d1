// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/share_terms.h"

#include "agent/policy/settings.h"

namespace gpuloom {
namespace {

// A ceiling of everything is none, which control::ShareTerms writes as 0.
uint32_t CeilingPermille(uint32_t percent) { return percent == 100 ? 0 : percent * 10; }

}  // namespace

control::ShareTerms ShareTermsOf(const Policy& policy, const PodContainer& owner) {
  const NamespaceSettings space = SettingsOfNamespace(policy, owner.pod_namespace);
  const PodSettings pod = SettingsOfPod(policy, owner.pod_namespace, owner.pod, owner.container);
  control::ShareTerms terms{};
  terms.namespace_weight = space.weight.value;
  terms.weight = pod.weight.value;
  // control::ShareTerms counts from 1, because 0 is what an older agent leaves out.
  terms.priority = static_cast<uint32_t>(arbiter::Index(pod.priority.value)) + 1;
  terms.namespace_time_permille = CeilingPermille(space.time_share_max_percent.value);
  terms.time_permille = CeilingPermille(pod.time_share_max_percent.value);
  return terms;
}

control::PartitionTerms PartitionTermsOf(const Policy& policy, const PodContainer& owner) {
  const NamespaceSettings space = SettingsOfNamespace(policy, owner.pod_namespace);
  const PodSettings pod = SettingsOfPod(policy, owner.pod_namespace, owner.pod, owner.container);
  const auto limit = [](uint32_t percent) { return percent == 100 ? 0 : percent; };
  return {limit(space.sm_percent.value), space.sm_reserved_percent.value,
          limit(pod.sm_percent.value), pod.sm_reserved_percent.value};
}

control::KernelTerms KernelTermsOf(const Policy& policy, const PodContainer& owner) {
  const KernelTimeRule rule =
      SettingsOfPod(policy, owner.pod_namespace, owner.pod, owner.container).max_kernel_time.value;
  return {rule.warn_s * 1000, rule.end_s * 1000};
}

uint32_t RescueAfterMsOf(const Policy& policy, const PodContainer& owner) {
  static_assert(kNeverRescued == control::kNeverRescued);
  return SettingsOfNamespace(policy, owner.pod_namespace).rescue_after_ms.value;
}

control::TraceTerms TraceTermsOf(const Policy& policy, const PodContainer& owner) {
  const TraceRule rule =
      SettingsOfPod(policy, owner.pod_namespace, owner.pod, owner.container).trace.value;
  if (rule == TraceRule::kNone) return control::TraceTerms::kNone;
  const TrustDomainRule domain =
      SettingsOfNamespace(policy, owner.pod_namespace).trust_domain.value;
  // CUPTI makes launches of all pods of a trust domain slower.
  return domain.kind == TrustDomainRule::Kind::kPod ? control::TraceTerms::kOwnByCupti
                                                    : control::TraceTerms::kOwn;
}

}  // namespace gpuloom
