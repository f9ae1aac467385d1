// SPDX-License-Identifier: Apache-2.0
// What the values of a policy's keys may be: how each is written, and within which bounds (docs/policy.md names them).
// Which keys there are, and what one rule says against another, is for policy_parser.cc.
//
// Each step sets its setting with its place, or is the parse's first mistake: then it returns false, and the setting does
// not count. `key` is the key's path, for the message. Pure but for the mistake; one thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/policy/first_mistake.h"
#include "agent/policy/policy.h"

namespace gpuloom {

// Whether it can be the name of a namespace or container, or with * and ? stand for some; of pods.
bool IsLabel(std::string_view text);
bool IsLabelOrGlob(std::string_view text);
bool IsPodOrGlob(std::string_view text);

class PolicyValues {
 public:
  // `mistake` outlives this.
  explicit PolicyValues(const FirstMistake* mistake) : mistake_(mistake) {}

  [[nodiscard]] bool ParseWeight(const YAML::Node& node, const std::string& key,
                                 std::optional<Setting<uint32_t>>* weight) const;
  [[nodiscard]] bool ParseMaxTenants(const YAML::Node& node, const std::string& key,
                                     std::optional<Setting<uint32_t>>* max_tenants) const;
  [[nodiscard]] bool ParseTruth(const YAML::Node& node, const std::string& key,
                                std::optional<Setting<bool>>* truth) const;
  [[nodiscard]] bool ParseMemory(const YAML::Node& node, const std::string& key,
                                 std::optional<Setting<MemoryRule>>* memory) const;
  [[nodiscard]] bool ParseTrustDomain(const YAML::Node& node, const std::string& key,
                                      std::optional<Setting<TrustDomainRule>>* trust_domain) const;
  [[nodiscard]] bool ParsePriority(const YAML::Node& node, const std::string& key,
                                   std::optional<Setting<arbiter::Priority>>* priority) const;
  [[nodiscard]] bool ParseTrace(const YAML::Node& node, const std::string& key,
                                std::optional<Setting<TraceRule>>* trace) const;
  [[nodiscard]] bool ParsePercent(const YAML::Node& node, const std::string& key,
                                  std::optional<Setting<uint32_t>>* percent) const;
  [[nodiscard]] bool ParseMemoryWait(const YAML::Node& node, const std::string& key,
                                     std::optional<Setting<uint32_t>>* memory_wait_s) const;
  [[nodiscard]] bool ParseRescueAfter(const YAML::Node& node, const std::string& key,
                                      std::optional<Setting<uint32_t>>* rescue_after_ms) const;
  [[nodiscard]] bool ParseKernelTime(const YAML::Node& map, const std::string& key,
                                     std::optional<Setting<KernelTimeRule>>* kernel_time) const;
  [[nodiscard]] bool ParseGpus(const YAML::Node& list, const std::string& key,
                               std::optional<Setting<std::vector<GpuPattern>>>* gpus) const;

 private:
  // In seconds. `or_what` ends the message: what else may be written.
  std::optional<uint32_t> ParseTime(const YAML::Node& node, const std::string& key,
                                    uint32_t least_s, const std::string& or_what) const;

  const FirstMistake* mistake_;
};

}  // namespace gpuloom
