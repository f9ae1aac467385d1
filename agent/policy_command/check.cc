// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/sm_division.h"
#include "agent/node/size.h"
#include "agent/policy/capacity.h"
#include "agent/policy_command/answers.h"

namespace gpuloom {
namespace {

// What each rule's percentages come to in whole groups of multiprocessors.
std::string Partitions(const PolicyCommand& command, const Policy& policy) {
  const arbiter::SmLayout layout =
      arbiter::SmLayout::Of(command.multiprocessors, command.multiprocessors_in_group,
                            command.multiprocessors / command.multiprocessors_in_group);
  std::string text;
  const auto add = [&](const std::string& path, const char* key,
                       const std::optional<Setting<uint32_t>>& percent) {
    if (!percent || percent->value == 100) return;
    const uint32_t count = layout.groups == 0 ? command.multiprocessors
                                              : layout.GroupsOf(percent->value) * layout.group_size;
    text += path + "." + key + ": " + std::to_string(percent->value) + "% are " +
            std::to_string(count) + " of " + std::to_string(command.multiprocessors) +
            " multiprocessors, in groups of " + std::to_string(layout.group_size) + "\n";
  };
  const auto add_rule = [&](const std::string& path, const PodKeys& keys) {
    add(path, "smPercent", keys.sm_percent);
    add(path, "smReserved", keys.sm_reserved_percent);
  };
  add_rule(policy.defaults.path, policy.defaults);
  for (const PolicyRule& rule : policy.namespaces) {
    add_rule(rule.path, rule);
    for (const PodRule& pod : rule.pods) add_rule(pod.path, pod);
  }
  return text;
}

Answer Bad(const PolicyCommand& command, const std::string& error) {
  Answer answer{"", error + "\n", kNotGood};
  if (command.format != Format::kTable) {
    answer.text =
        FormatDocument({{"file", command.file}, {"good", false}, {"error", error}}, command.format);
  }
  return answer;
}

}  // namespace

Answer Check(const PolicyCommand& command, const std::optional<Policy>& policy,
             const std::string& policy_error) {
  if (!policy) return Bad(command, policy_error);
  std::string text;
  Json gpus = Json::array();
  for (const uint64_t gpu_bytes : command.gpu_bytes) {
    std::string error;
    const std::string gpu = "of " + FormatSize(gpu_bytes);
    const std::optional<Capacity> capacity =
        MakeCapacity(gpu, gpu_bytes, command.slots, command.reserve, &error);
    if (!capacity) return {"", "gpuloom: " + error + "\n", kMistake};
    const std::string broken = BrokenPromise(*policy, *capacity);
    if (!broken.empty()) return Bad(command, broken);
    text += "a GPU " + gpu + ": " + std::to_string(command.slots) + " slots, " +
            FormatSize(capacity->reserve_bytes) + " kept for the executors, auto is " +
            FormatSize(AutoSlotBytes(*capacity)) + " a slot\n";
    gpus.push_back({{"memory_bytes", gpu_bytes},
                    {"slots", command.slots},
                    {"reserve_bytes", capacity->reserve_bytes},
                    {"auto_slot_bytes", AutoSlotBytes(*capacity)}});
  }
  if (command.format == Format::kTable) {
    return {text + Partitions(command, *policy) + command.file + ": good\n", "", kGood};
  }
  return {FormatDocument({{"file", command.file}, {"good", true}, {"gpus", gpus}}, command.format),
          "", kGood};
}

}  // namespace gpuloom
