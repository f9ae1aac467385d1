// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/node/size.h"
#include "agent/policy/settings.h"
#include "agent/policy_command/answers.h"

namespace gpuloom {
namespace {

constexpr size_t kKeyLetters = 15;
constexpr size_t kValueLetters = 22;

std::string Padded(const std::string& text, size_t letters) {
  return text + std::string(text.size() < letters ? letters - text.size() : 1, ' ');
}

std::string Spelled(const KernelTimeRule& rule) {
  if (rule == KernelTimeRule{}) return "no limit";
  std::string text;
  if (rule.warn_s != 0) text = "warn: " + std::to_string(rule.warn_s) + "s";
  if (rule.end_s != 0) {
    text += (text.empty() ? "end: " : ", end: ") + std::to_string(rule.end_s) + "s";
  }
  return text;
}

// A line for each key: what it is, and which rule says so.
class Table {
 public:
  Table(const Policy& policy, std::string* text) : policy_(policy), text_(*text) {}

  template <typename T>
  void Add(const std::string& key, const std::string& value, const Chosen<T>& chosen) {
    text_ += "  " + Padded(key, kKeyLetters) + Padded(value, kValueLetters);
    if (chosen.key.empty()) {
      text_ += "built in";
    } else {
      text_ += policy_.file + ":" + std::to_string(chosen.place.line) + ":" +
               std::to_string(chosen.place.column) + ": " + chosen.key;
    }
    text_ += "\n";
  }

  // What a pod adds to its namespace's: nothing, where no rule of pods says something.
  enum class Whose { kNamespace, kPod };
  void AddPodKeys(const PodSettings& settings, Whose whose) {
    const auto value = [whose](const std::string& key, const std::string& text) {
      return whose == Whose::kPod && key.empty() ? "as above" : text;
    };
    Add("weight", std::to_string(settings.weight.value), settings.weight);
    Add("priority", std::string(kPriorityNames[arbiter::Index(settings.priority.value)]),
        settings.priority);
    const Chosen<uint32_t>& most = settings.time_share_max_percent;
    Add("timeShareMax", value(most.key, std::to_string(most.value) + "%"), most);
    const Chosen<uint32_t>& sms = settings.sm_percent;
    Add("smPercent", value(sms.key, std::to_string(sms.value) + "%"), sms);
    const Chosen<uint32_t>& reserved = settings.sm_reserved_percent;
    Add("smReserved", value(reserved.key, std::to_string(reserved.value) + "%"), reserved);
    const Chosen<uint32_t>& wait = settings.memory_wait_s;
    Add("memoryWait", value(wait.key, std::to_string(wait.value) + "s"), wait);
    const Chosen<KernelTimeRule>& kernel_time = settings.max_kernel_time;
    Add("maxKernelTime", value(kernel_time.key, Spelled(kernel_time.value)), kernel_time);
    Add("deny", value(settings.deny.key, settings.deny.value ? "true" : "false"), settings.deny);
    std::string gpus;
    for (const GpuPattern& gpu : settings.gpus.value) {
      gpus += gpus.empty() ? "" : ", ";
      gpus += gpu.index.has_value() ? std::to_string(*gpu.index) : gpu.glob;
    }
    Add("gpus", value(settings.gpus.key, gpus.empty() ? "all" : gpus), settings.gpus);
  }

 private:
  const Policy& policy_;
  std::string& text_;
};

std::string Spelled(const TrustDomainRule& rule) {
  switch (rule.kind) {
    case TrustDomainRule::Kind::kPod:
      return "pod";
    case TrustDomainRule::Kind::kNamespace:
      return "namespace";
    case TrustDomainRule::Kind::kNode:
      return "node";
    case TrustDomainRule::Kind::kNamed:
      return rule.name;
  }
  return {};
}

}  // namespace

PolicyAnswer Explain(const PolicyCommand& command, const Policy& policy) {
  PolicyAnswer answer;
  const NamespaceSettings space = SettingsOfNamespace(policy, command.pod_namespace);
  answer.text = "namespace " + command.pod_namespace + "\n";
  Table table(policy, &answer.text);
  const MemoryRule& memory = space.memory.value;
  table.Add("memory", memory.is_auto ? "auto" : FormatSize(memory.slot_bytes), space.memory);
  table.Add("trustDomain", Spelled(space.trust_domain.value), space.trust_domain);
  const uint32_t most = space.max_tenants.value;
  table.Add("maxTenants", most == 0 ? "no bound" : std::to_string(most), space.max_tenants);
  table.AddPodKeys(space, Table::Whose::kNamespace);
  if (command.pod.empty()) return answer;

  const size_t slash = std::min(command.pod.find('/'), command.pod.size());
  const std::string pod = command.pod.substr(0, slash);
  const std::string container =
      slash < command.pod.size() ? command.pod.substr(slash + 1) : std::string();
  answer.text += "pod " + pod + (container.empty() ? "" : ", container " + container) + "\n";
  table.AddPodKeys(SettingsOfPod(policy, command.pod_namespace, pod, container),
                   Table::Whose::kPod);
  return answer;
}

}  // namespace gpuloom
