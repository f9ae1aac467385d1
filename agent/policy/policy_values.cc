// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy_values.h"

#include <algorithm>
#include <array>
#include <utility>

#include "agent/node/size.h"
#include "agent/policy/nearest_word.h"
#include "agent/policy/yaml_document.h"

namespace gpuloom {
namespace {

constexpr std::array<std::string_view, 2> kKernelTimeKeys = {"warn", "end"};
constexpr std::string_view kNever = "never";
// Values beyond these bounds are mistakes. docs/policy.md names them.
constexpr uint32_t kMaxWeight = 1000;
constexpr uint32_t kMaxTenants = 1000;
constexpr uint32_t kMaxTimeS = 3600;
constexpr uint32_t kLeastRescueMs = 10;
constexpr uint32_t kMaxGpuIndex = 1023;
constexpr size_t kMaxGpus = 64;
constexpr size_t kMaxGpuLetters = 128;

// Lower-case letters, digits and -, as names of namespaces and containers are; of pods points, too. A glob's * and ?
// stand for some.
bool IsName(std::string_view text, size_t most_letters, std::string_view further_letters) {
  return !text.empty() && text.size() <= most_letters &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                  further_letters.find(c) != further_letters.npos;
         });
}

}  // namespace

// 63 and 253 letters are Kubernetes' limits for labels and for pods' names.
bool IsLabel(std::string_view text) { return IsName(text, 63, ""); }
bool IsLabelOrGlob(std::string_view text) { return IsName(text, 63, "*?"); }
bool IsPodOrGlob(std::string_view text) { return IsName(text, 253, ".*?"); }

void PolicyValues::ParseWeight(const YAML::Node& node, const std::string& key,
                               std::optional<Setting<uint32_t>>* weight) const {
  const std::optional<uint32_t> value = WholeNumber(node, 1, kMaxWeight);
  if (!value) {
    return mistakes_->Add(node, key, "write a whole number from 1 to 1000, without quotes");
  }
  *weight = {*value, PositionOf(node)};
}

void PolicyValues::ParseMaxTenants(const YAML::Node& node, const std::string& key,
                                   std::optional<Setting<uint32_t>>* max_tenants) const {
  const std::optional<uint32_t> value = WholeNumber(node, 1, kMaxTenants);
  if (!value) {
    return mistakes_->Add(
        node, key,
        "write a whole number from 1 to 1000, without quotes; none at all is deny: true");
  }
  *max_tenants = {*value, PositionOf(node)};
}

void PolicyValues::ParseTruth(const YAML::Node& node, const std::string& key,
                              std::optional<Setting<bool>>* truth) const {
  const std::optional<bool> value = TruthValue(node);
  if (!value) return mistakes_->Add(node, key, "write true or false, without quotes");
  *truth = {*value, PositionOf(node)};
}

// The unit must be binary, and there must be one. The size is kept as it is written; Decide
// rounds it down.
void PolicyValues::ParseMemory(const YAML::Node& node, const std::string& key,
                               std::optional<Setting<MemoryRule>>* memory) const {
  if (!node.IsScalar()) return mistakes_->Add(node, key, "write a size like 8GiB, or auto");
  MemoryRule rule;
  if (node.Scalar() != "auto") {
    std::string error;
    const std::optional<uint64_t> size = ParseSize(node.Scalar(), &error);
    if (!size) return mistakes_->Add(node, key, error + ", or auto");
    // Bytes by themselves are a number in YAML, which some tools write anew as 4.29e+09.
    if (node.Scalar().find('i') == std::string::npos) {
      return mistakes_->Add(node, key,
                            "size '" + node.Scalar() + "' has no unit: write KiB, MiB, GiB or TiB");
    }
    if (*size < kQuotaGranuleBytes) {
      return mistakes_->Add(node, key, "less than 2MiB, the smallest piece of GPU memory");
    }
    rule = {false, *size};
  }
  *memory = {rule, PositionOf(node)};
}

// The names of the kinds cannot be names of domains. `namespace` is the default and stays.
void PolicyValues::ParseTrustDomain(const YAML::Node& node, const std::string& key,
                                    std::optional<Setting<TrustDomainRule>>* trust_domain) const {
  if (!node.IsScalar() || !IsLabel(node.Scalar())) {
    return mistakes_->Add(
        node, key, "write pod, namespace, node, or a name of lower-case letters, digits and -");
  }
  if (IsNoText(node)) {
    return mistakes_->Add(node, key,
                          "write it in quotes, \"" + node.Scalar() +
                              "\": without them YAML has it for a number, a date or a truth value");
  }
  TrustDomainRule domain;
  if (node.Scalar() == "pod") {
    domain.kind = TrustDomainRule::Kind::kPod;
  } else if (node.Scalar() == "node") {
    domain.kind = TrustDomainRule::Kind::kNode;
  } else if (node.Scalar() != "namespace") {
    domain.kind = TrustDomainRule::Kind::kNamed;
    domain.name = node.Scalar();
  }
  *trust_domain = {domain, PositionOf(node)};
}

void PolicyValues::ParsePriority(const YAML::Node& node, const std::string& key,
                                 std::optional<Setting<arbiter::Priority>>* priority) const {
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  // At most one name matches.
  for (const arbiter::Priority each : arbiter::kAllPriorities) {
    if (text == kPriorityNames[arbiter::Index(each)]) *priority = {each, PositionOf(node)};
  }
  if (priority->has_value()) return;
  const std::string nearest(NearestWord(text, kPriorityNames));
  return mistakes_->Add(
      node, key, nearest.empty() ? "write high, normal or low" : "did you mean " + nearest + "?");
}

void PolicyValues::ParseTrace(const YAML::Node& node, const std::string& key,
                              std::optional<Setting<TraceRule>>* trace) const {
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  for (const TraceRule each : {TraceRule::kNone, TraceRule::kOwn}) {
    if (text == kTraceNames[static_cast<size_t>(each)]) *trace = {each, PositionOf(node)};
  }
  if (trace->has_value()) return;
  const std::string nearest(NearestWord(text, kTraceNames));
  return mistakes_->Add(node, key,
                        nearest.empty() ? "write none or own" : "did you mean " + nearest + "?");
}

// The sign is asked for because 25 could be a weight, and 0.25 a share.
void PolicyValues::ParsePercent(const YAML::Node& node, const std::string& key,
                                std::optional<Setting<uint32_t>>* percent) const {
  if (WholeNumber(node, 1, 100)) {
    return mistakes_->Add(node, key,
                          "'" + node.Scalar() + "' has no unit: write " + node.Scalar() + "%");
  }
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  const std::optional<uint32_t> value =
      // Whole numbers only, as everywhere in a policy.
      text.ends_with('%') ? WholeNumber(text.substr(0, text.size() - 1), 1, 100) : std::nullopt;
  if (!value) return mistakes_->Add(node, key, "write a share from 1% to 100%, in whole numbers");
  *percent = {*value, PositionOf(node)};
}

std::optional<uint32_t> PolicyValues::ParseTime(const YAML::Node& node, const std::string& key,
                                                uint32_t least_s,
                                                const std::string& or_what) const {
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  if (WholeNumber(text, 0, UINT32_MAX)) {
    mistakes_->Add(node, key, "'" + text + "' has no unit: write " + text + "s");
    return std::nullopt;
  }
  for (const auto& [unit, unit_s] :
       {std::pair('s', 1u), std::pair('m', 60u), std::pair('h', 3600u)}) {
    if (!text.ends_with(unit)) continue;
    const std::optional<uint32_t> value =
        WholeNumber(std::string_view(text).substr(0, text.size() - 1), least_s, kMaxTimeS / unit_s);
    if (value) return *value * unit_s;
  }
  mistakes_->Add(node, key,
                 "write a time like " + std::to_string(least_s) +
                     "s, 30s or 5m, in whole numbers, at most 1h" + or_what);
  return std::nullopt;
}

void PolicyValues::ParseMemoryWait(const YAML::Node& node, const std::string& key,
                                   std::optional<Setting<uint32_t>>* memory_wait_s) const {
  const std::optional<uint32_t> seconds = ParseTime(node, key, 0, "");
  if (seconds) *memory_wait_s = {*seconds, PositionOf(node)};
}

void PolicyValues::ParseRescueAfter(const YAML::Node& node, const std::string& key,
                                    std::optional<Setting<uint32_t>>* rescue_after_ms) const {
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  if (text == kNever) {
    *rescue_after_ms = {kNeverRescued, PositionOf(node)};
    return;
  }
  if (WholeNumber(text, 0, UINT32_MAX)) {
    return mistakes_->Add(node, key, "'" + text + "' has no unit: write " + text + "ms");
  }
  using Unit = std::pair<std::string_view, uint32_t>;
  for (const auto& [unit, unit_ms] :
       {Unit("ms", 1), Unit("s", 1000), Unit("m", 60'000), Unit("h", 3'600'000)}) {
    if (!text.ends_with(unit)) continue;
    const std::optional<uint32_t> value = WholeNumber(
        std::string_view(text).substr(0, text.size() - unit.size()), 1, kMaxTimeS * 1000 / unit_ms);
    if (!value || *value * unit_ms < kLeastRescueMs) continue;
    *rescue_after_ms = {*value * unit_ms, PositionOf(node)};
    return;
  }
  return mistakes_->Add(
      node, key, "write a time like 100ms, 5s or 1m, in whole numbers, from 10ms to 1h, or never");
}

// Either limit may be left out, but not both: an empty map is a mistake rather than "no limit".
void PolicyValues::ParseKernelTime(const YAML::Node& map, const std::string& key,
                                   std::optional<Setting<KernelTimeRule>>* kernel_time) const {
  if (!map.IsMap() || map.size() == 0) {
    return mistakes_->Add(map, key,
                          "write what happens after which time, like {warn: 10s}, {end: 1m} or "
                          "{warn: 10s, end: 1m}");
  }
  mistakes_->CheckKeys(map, key, kKernelTimeKeys);
  KernelTimeRule rule;
  for (const auto& [name, seconds] :
       {std::pair("warn", &rule.warn_s), std::pair("end", &rule.end_s)}) {
    const YAML::Node node = map[name];
    // 0 in the rule: for ever.
    if (!node || (node.IsScalar() && node.Scalar() == kNever)) continue;
    *seconds = ParseTime(node, PathBelow(key, name), 1, ", or never").value_or(0);
  }
  *kernel_time = {rule, PositionOf(map)};
}

// An empty list would be "no GPU", which is deny's to say.
void PolicyValues::ParseGpus(const YAML::Node& list, const std::string& key,
                             std::optional<Setting<std::vector<GpuPattern>>>* gpus) const {
  constexpr char kKinds[] =
      "write a list of GPUs: their numbers without quotes, UUIDs (GPU-…), products "
      "(\"NVIDIA H200\"), or globs of these two";
  if (!list.IsSequence() || list.size() == 0 || list.size() > kMaxGpus) {
    return mistakes_->Add(list, key, kKinds);
  }
  std::vector<GpuPattern> patterns;
  for (const YAML::Node& node : list) {
    // Without quotes; in quotes a number is text, and refused below.
    if (const std::optional<uint32_t> index = WholeNumber(node, 0, kMaxGpuIndex)) {
      patterns.push_back({static_cast<int>(*index), ""});
      continue;
    }
    const std::string text = node.IsScalar() ? node.Scalar() : "";
    const bool is_printable =
        std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
    // Without one it is a number that was written in another way, not a UUID or product.
    const bool has_letter = std::any_of(text.begin(), text.end(), [](char c) {
      return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '*';
    });
    if (!is_printable || !has_letter || text.size() > kMaxGpuLetters || IsNoText(node)) {
      mistakes_->Add(node, key, kKinds);
      continue;
    }
    patterns.push_back({std::nullopt, text});
  }
  *gpus = {std::move(patterns), PositionOf(list)};
}

}  // namespace gpuloom
