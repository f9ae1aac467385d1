// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/policy/settings.h"
#include "agent/policy_command/answers.h"
#include "agent/policy_command/spelling.h"

namespace gpuloom {
namespace {

// Columns as wide as the longest key, and as most values.
constexpr size_t kKeyLetters = 15;
constexpr size_t kValueLetters = 22;

// A text that is too long still gets one blank behind it.
std::string Padded(const std::string& text, size_t letters) {
  return text + std::string(text.size() < letters ? letters - text.size() : 1, ' ');
}

// For each key what it is, and which rule says so: a line each, and the same in a document.
class Settings {
 public:
  explicit Settings(const Policy& policy) : policy_(policy) {}

  const std::string& text() const { return text_; }
  const Json& document() const { return document_; }

  // `value` in a document, `shown` in a line.
  template <typename T>
  void Add(const std::string& key, const Json& value, const std::string& shown,
           const Chosen<T>& chosen) {
    Json rule;  // null: built in
    if (!chosen.key.empty()) {
      rule = policy_.file + ":" + std::to_string(chosen.place.line) + ":" +
             std::to_string(chosen.place.column) + ": " + chosen.key;
    }
    text_ += "  " + Padded(key, kKeyLetters) + Padded(shown, kValueLetters) +
             (rule.is_null() ? "built in" : rule.get<std::string>()) + "\n";
    document_[key] = {{"value", value}, {"rule", rule}};
  }
  template <typename T>
  void Add(const std::string& key, const std::string& value, const Chosen<T>& chosen) {
    Add(key, value, value, chosen);
  }

  // What a pod adds to its namespace's settings: nothing, unless a rule for pods sets something.
  enum class Whose { kNamespace, kPod };
  void AddPodKeys(const PodSettings& settings, Whose whose) {
    // For keys that a pod has from its namespace unless its own rule gives less. Weight and
    // priority always have a value of the pod's own.
    const auto add = [&](const std::string& key, const Json& value, const std::string& shown,
                         const auto& chosen) {
      // Null: as the namespace's.
      if (whose == Whose::kPod && chosen.key.empty()) {
        Add(key, nullptr, "as above", chosen);
      } else {
        Add(key, value, shown, chosen);
      }
    };
    const uint32_t weight = settings.weight.value;
    Add("weight", weight, std::to_string(weight), settings.weight);
    Add("priority", Spelled(settings.priority.value), settings.priority);
    const std::string most = SpelledPercent(settings.time_share_max_percent.value);
    add("timeShareMax", most, most, settings.time_share_max_percent);
    const std::string sms = SpelledPercent(settings.sm_percent.value);
    add("smPercent", sms, sms, settings.sm_percent);
    const std::string reserved = SpelledPercent(settings.sm_reserved_percent.value);
    add("smReserved", reserved, reserved, settings.sm_reserved_percent);
    const std::string wait = SpelledSeconds(settings.memory_wait_s.value);
    add("memoryWait", wait, wait, settings.memory_wait_s);
    const std::string kernel_time = Spelled(settings.max_kernel_time.value);
    add("maxKernelTime", kernel_time, kernel_time, settings.max_kernel_time);
    const std::string trace = Spelled(settings.trace.value);
    add("trace", trace, trace, settings.trace);
    const bool deny = settings.deny.value;
    add("deny", deny, SpelledTruth(deny), settings.deny);
    Json gpus = Json::array();
    for (const GpuPattern& gpu : settings.gpus.value) {
      gpus.push_back(gpu.index.has_value() ? Json(*gpu.index) : Json(gpu.glob));
    }
    add("gpus", gpus.empty() ? Json("all") : gpus, Spelled(settings.gpus.value), settings.gpus);
  }

 private:
  const Policy& policy_;
  std::string text_;
  Json document_ = Json::object();
};

}  // namespace

Answer Explain(const PolicyCommand& command, const Policy& policy) {
  const NamespaceSettings space = SettingsOfNamespace(policy, command.pod_namespace);
  Settings of_namespace(policy);
  const MemoryRule& memory = space.memory.value;
  of_namespace.Add("memory", Spelled(memory), space.memory);
  of_namespace.Add("trustDomain", Spelled(space.trust_domain.value), space.trust_domain);
  const uint32_t most = space.max_tenants.value;
  of_namespace.Add("maxTenants", most == 0 ? Json() : Json(most), SpelledBound(most),
                   space.max_tenants);
  of_namespace.Add("rescueAfter", SpelledRescue(space.rescue_after_ms.value),
                   space.rescue_after_ms);
  of_namespace.AddPodKeys(space, Settings::Whose::kNamespace);
  std::string text = "namespace " + command.pod_namespace + "\n" + of_namespace.text();
  Json document = {{"namespace", command.pod_namespace}, {"settings", of_namespace.document()}};

  if (!command.pod.empty()) {
    // POD or POD/CONTAINER.
    const size_t slash = std::min(command.pod.find('/'), command.pod.size());
    const std::string pod = command.pod.substr(0, slash);
    const std::string container =
        slash < command.pod.size() ? command.pod.substr(slash + 1) : std::string();
    Settings of_pod(policy);
    of_pod.AddPodKeys(SettingsOfPod(policy, command.pod_namespace, pod, container),
                      Settings::Whose::kPod);
    text +=
        "pod " + pod + (container.empty() ? "" : ", container " + container) + "\n" + of_pod.text();
    document["pod"] = {{"name", pod}, {"container", container}, {"settings", of_pod.document()}};
  }
  return {command.format == Format::kTable ? text : FormatDocument(document, command.format), "",
          kGood};
}

}  // namespace gpuloom
