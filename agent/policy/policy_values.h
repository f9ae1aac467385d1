// SPDX-License-Identifier: Apache-2.0
// What the values of a policy's keys may be: how each is written, and within which bounds (docs/policy.md names them).
// Which keys there are, and what one rule says against another, is for policy_parser.cc.
//
// Each step sets its setting with its place, or adds a mistake and leaves it unset. `key` is the key's path, for the
// message. Pure but for the mistakes; one thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/policy/policy.h"
#include "agent/policy/policy_mistakes.h"

namespace gpuloom {

// Whether it can be the name of a namespace or container, or with * and ? stand for some; of pods.
bool IsLabel(std::string_view text);
bool IsLabelOrGlob(std::string_view text);
bool IsPodOrGlob(std::string_view text);

class PolicyValues {
 public:
  // `mistakes` outlives this.
  explicit PolicyValues(PolicyMistakes* mistakes) : mistakes_(mistakes) {}

  void ParseWeight(const YAML::Node& node, const std::string& key,
                   std::optional<Setting<uint32_t>>* weight) const;
  void ParseMaxTenants(const YAML::Node& node, const std::string& key,
                       std::optional<Setting<uint32_t>>* max_tenants) const;
  void ParseTruth(const YAML::Node& node, const std::string& key,
                  std::optional<Setting<bool>>* truth) const;
  void ParseMemory(const YAML::Node& node, const std::string& key,
                   std::optional<Setting<MemoryRule>>* memory) const;
  void ParseTrustDomain(const YAML::Node& node, const std::string& key,
                        std::optional<Setting<TrustDomainRule>>* trust_domain) const;
  void ParsePriority(const YAML::Node& node, const std::string& key,
                     std::optional<Setting<arbiter::Priority>>* priority) const;
  void ParseTrace(const YAML::Node& node, const std::string& key,
                  std::optional<Setting<TraceRule>>* trace) const;
  void ParsePercent(const YAML::Node& node, const std::string& key,
                    std::optional<Setting<uint32_t>>* percent) const;
  void ParseMemoryWait(const YAML::Node& node, const std::string& key,
                       std::optional<Setting<uint32_t>>* memory_wait_s) const;
  void ParseRescueAfter(const YAML::Node& node, const std::string& key,
                        std::optional<Setting<uint32_t>>* rescue_after_ms) const;
  void ParseKernelTime(const YAML::Node& map, const std::string& key,
                       std::optional<Setting<KernelTimeRule>>* kernel_time) const;
  void ParseGpus(const YAML::Node& list, const std::string& key,
                 std::optional<Setting<std::vector<GpuPattern>>>* gpus) const;

 private:
  // In seconds. `or_what` ends the message: what else may be written.
  std::optional<uint32_t> ParseTime(const YAML::Node& node, const std::string& key,
                                    uint32_t least_s, const std::string& or_what) const;

  PolicyMistakes* const mistakes_;
};

}  // namespace gpuloom
