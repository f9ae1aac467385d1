// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "agent/policy/settings.h"
#include "agent/policy_command/answers.h"
#include "agent/simulator/cluster.h"

namespace gpuloom {
namespace {

// Returns an error if a tenant sets what the policy sets, or names no namespace.
std::string WrongTenant(const std::string& tenant) {
  bool has_namespace = false;
  for (size_t begin = 0; begin <= tenant.size();) {
    const size_t end = std::min(tenant.find(',', begin), tenant.size());
    const std::string word = tenant.substr(begin, end - begin);
    for (const char* key : {"weight=", "namespace-weight=", "priority=", "max=", "domain="}) {
      if (word.starts_with(key)) return word + ": that is the policy's to say";
    }
    has_namespace |= word.starts_with("namespace=");
    begin = end + 1;
  }
  return has_namespace ? "" : tenant + ": namespace=NAME is missing";
}

// 0: it may starve.
uint64_t StarvationNs(uint32_t rescue_after_ms) {
  return rescue_after_ms == kNeverRescued ? 0 : uint64_t{rescue_after_ms} * 1'000'000;
}

uint32_t PermilleOf(const Chosen<uint32_t>& percent) { return percent.value * 10; }

}  // namespace

Answer Simulate(const PolicyCommand& command, const Policy& policy) {
  std::vector<std::string> words = command.simulator;
  for (const std::string& tenant : command.tenants) {
    const std::string wrong = WrongTenant(tenant);
    if (!wrong.empty()) return {"", "gpuloom: --tenant: " + wrong + "\n", kMistake};
    words.insert(words.end(), {"--tenant", tenant});
  }
  simulator::Arguments arguments;
  std::string error;
  if (!simulator::Parse(words, &arguments, &error))
    return {"", "gpuloom: " + error + "\n", kMistake};

  for (size_t i = 0; i < arguments.spaces.size(); ++i) {
    const NamespaceSettings settings = SettingsOfNamespace(policy, arguments.spaces[i]);
    // These values come from the policy instead of the simulator's own arguments.
    arguments.gpu.spaces[i] = {settings.weight.value, PermilleOf(settings.time_share_max_percent)};
  }
  std::map<std::string, uint32_t> domains;
  std::set<std::string> ignored;
  for (simulator::TenantSpec& tenant : arguments.gpu.tenants) {
    const std::string& space = arguments.spaces[tenant.space];
    const size_t slash = std::min(tenant.name.find('/'), tenant.name.size());
    const std::string pod = tenant.name.substr(0, slash);
    const std::string container = slash < tenant.name.size() ? tenant.name.substr(slash + 1) : "";
    const PodSettings settings = SettingsOfPod(policy, space, pod, container);
    const NamespaceSettings of_space = SettingsOfNamespace(policy, space);
    tenant.policy = {settings.weight.value, tenant.policy.slots, settings.priority.value,
                     PermilleOf(settings.time_share_max_percent),
                     StarvationNs(of_space.rescue_after_ms.value)};
    // The simulator has no partitions; each rule that it leaves out is reported once.
    for (const auto& percent : {of_space.sm_percent, settings.sm_percent}) {
      if (percent.value != 100) ignored.insert(percent.key);
    }
    for (const auto& percent : {of_space.sm_reserved_percent, settings.sm_reserved_percent}) {
      if (percent.value != 0) ignored.insert(percent.key);
    }
    // Only the domain of the grant is used, because memory is not simulated. Domains are numbered in order of their
    // first appearance.
    const std::string domain = Decide(policy, Capacity(), space, pod).trust_domain;
    tenant.domain = domains.emplace(domain, static_cast<uint32_t>(domains.size())).first->second;
  }
  std::string warning;
  for (const std::string& key : ignored) {
    warning += "gpuloom: " + key + " is not simulated: every tenant has all multiprocessors\n";
  }
  return {simulator::Report(arguments), warning, kGood};
}

}  // namespace gpuloom
