// SPDX-License-Identifier: Apache-2.0
// Bytes as an operator's policy file. It is refused with the line where it is wrong, or it says the same each time it
// is read, gives no more than it may promise, and keeps the trust domains of different kinds apart.
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "agent/policy/glob.h"
#include "agent/policy/policy.h"
#include "agent/policy/policy_parser.h"
#include "agent/policy/settings.h"

namespace gpuloom {
namespace {

constexpr char kFile[] = "policy.yaml";

void Check(bool ok, int line = __builtin_LINE()) {
  if (ok) return;
  fprintf(stderr, "policy_fuzz.cc:%d: does not hold\n", line);
  abort();
}

// Begins with file, line and column.
bool NamesItsPlace(std::string_view message) {
  const std::string start = std::string(kFile) + ":";
  if (!message.starts_with(start)) return false;
  message.remove_prefix(start.size());
  for (const char* end : {":", ": "}) {
    size_t digits = 0;
    while (digits < message.size() && isdigit(static_cast<unsigned char>(message[digits])))
      ++digits;
    message.remove_prefix(digits);
    if (digits == 0 || !message.starts_with(end)) return false;
    message.remove_prefix(1);
  }
  return true;
}

// No pod has more than its namespace, whatever it is called.
void CheckPod(const Policy& policy, const Capacity& gpu, const std::string& space,
              const std::string& pod, const std::string& container) {
  const NamespaceSettings of_namespace = SettingsOfNamespace(policy, space);
  const PodSettings of_pod = SettingsOfPod(policy, space, pod, container);
  for (const PodSettings& settings : {PodSettings(of_namespace), of_pod}) {
    Check(settings.weight.value >= 1 && settings.weight.value <= 1000);
    Check(settings.time_share_max_percent.value >= 1 &&
          settings.time_share_max_percent.value <= 100);
  }
  const KernelTimeRule& longest = of_namespace.max_kernel_time.value;
  const KernelTimeRule& of_kernels = of_pod.max_kernel_time.value;
  for (const auto& [pod_s, space_s] :
       {std::pair(of_kernels.warn_s, longest.warn_s), std::pair(of_kernels.end_s, longest.end_s)}) {
    Check(pod_s <= 3600 && (space_s == 0 || (pod_s != 0 && pod_s <= space_s)));
  }
  Check(arbiter::Index(of_pod.priority.value) >= arbiter::Index(of_namespace.priority.value));
  const std::string refusal = Refusal(policy, gpu, {space, pod, container, 3});
  Check(refusal.empty() || NamesItsPlace(refusal));
  const uint32_t most = of_namespace.max_tenants.value;
  if (of_namespace.deny.value || (most != 0 && most <= 3)) Check(!refusal.empty());
}

// A text is refused with a message that names its place, or it is a policy of which the promises
// below hold for any namespace, pod and GPU.
void Run(const std::string& text) {
  std::string error;
  const std::optional<Policy> policy = ParsePolicy(kFile, text, &error);
  if (!policy) return Check(NamesItsPlace(error));
  const std::optional<Policy> again = ParsePolicy(kFile, text, &error);
  // Parsing depends on nothing but the text.
  Check(again && again->namespaces.size() == policy->namespaces.size());

  Capacity capacity{"gpu", uint64_t{80} << 30, 0, 16};
  capacity.reserve_bytes = AutoReserveBytes(capacity.total_bytes, capacity.slots);
  for (const ImpossibleRule& one : ImpossibleRules(*policy, capacity)) {
    Check(NamesItsPlace(one.message) && !policy->overcommit);
  }
  std::vector<std::string> namespaces = {"default", "team-a", "x"};
  for (const PolicyRule& rule : policy->namespaces) {
    Check(GlobMatches(rule.pattern, rule.pattern));
    if (rule.pattern.find_first_of("*?") == std::string::npos) namespaces.push_back(rule.pattern);
    for (const PodRule& pod : rule.pods) {
      CheckPod(*policy, capacity, rule.pattern, pod.pod, pod.container.value_or("main"));
    }
  }
  for (const std::string& name : namespaces) {
    const Grant grant = Decide(*policy, capacity, name, "pod");
    Check(Decide(*again, capacity, name, "pod") == grant);
    if (!policy->overcommit && Refusal(*policy, capacity, {name, "pod", "main", 0}).empty()) {
      Check(grant.slot_bytes <= (capacity.total_bytes - capacity.reserve_bytes) /
                                    static_cast<uint64_t>(capacity.slots));
    }
    // Pods share a domain, unless each has its own.
    const std::string& domain = grant.trust_domain;
    Check(domain.find('\n') == std::string::npos);
    const Grant other = Decide(*policy, capacity, name, "other-pod");
    Check(other.slot_bytes == grant.slot_bytes);
    Check((other.trust_domain != domain) == domain.starts_with("pod/"));
    CheckPod(*policy, capacity, name, "pod", "main");
  }
}

}  // namespace
}  // namespace gpuloom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gpuloom::Run(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
