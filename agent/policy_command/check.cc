// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/arbiter/sm_division.h"
#include "agent/node/size.h"
#include "agent/policy/capacity.h"
#include "agent/policy/settings.h"
#include "agent/policy_command/answers.h"
#include "agent/policy_command/reservations.h"

namespace gpuloom {
namespace {

// As the executors divide it, for a GPU that is only described.
arbiter::SmLayout LayoutOf(const PolicyCommand& command) {
  uint32_t groups = command.multiprocessors / command.multiprocessors_in_group;
  // The driver leaves 12 over of an H100's or H200's (measured; docs/design/sm-partitions.md).
  if (command.multiprocessors == 132 && command.multiprocessors_in_group == 8) groups = 15;
  return arbiter::SmLayout::Of(command.multiprocessors, command.multiprocessors_in_group, groups);
}

// Converts each rule's percentages to whole groups of multiprocessors: one line for each, and the same in a document.
std::string Partitions(const PolicyCommand& command, const Policy& policy, Json* document) {
  const arbiter::SmLayout layout = LayoutOf(command);
  std::string text;
  const auto add = [&](const std::string& path, const char* key,
                       const std::optional<Setting<uint32_t>>& percent) {
    // All of them is no partition.
    if (!percent || percent->value == 100) return;
    // A device that cannot be divided gives everybody all of it.
    const uint32_t count = layout.groups == 0 ? command.multiprocessors
                                              : layout.GroupsOf(percent->value) * layout.group_size;
    text += path + "." + key + ": " + std::to_string(percent->value) + "% are " +
            std::to_string(count) + " of " + std::to_string(command.multiprocessors) +
            " multiprocessors, in groups of " + std::to_string(layout.group_size) + "\n";
    document->push_back({{"key", path + "." + key},
                         {"percent", percent->value},
                         {"multiprocessors", count},
                         {"of_multiprocessors", command.multiprocessors},
                         {"in_groups_of", layout.group_size}});
  };
  const auto add_rule = [&](const std::string& path, const PodKeys& keys) {
    add(path, "smPercent", keys.sm_percent);
    add(path, "smReserved", keys.sm_reserved_percent);
  };
  // Every rule that sets a percentage, whichever pods it is for.
  add_rule(policy.defaults.path, policy.defaults);
  for (const PolicyRule& rule : policy.namespaces) {
    add_rule(rule.path, rule);
    for (const PodRule& pod : rule.pods) add_rule(pod.path, pod);
  }
  return text;
}

// Returns the policy for a GPU of which only the product, or only the memory, is known: lists of `gpus` that need
// unknown properties are emptied.
Policy WithoutUnknownGpus(Policy policy, const std::string& product) {
  const auto forget = [&](PolicyRule* rule) {
    if (!rule->gpus.has_value()) return;
    const std::vector<GpuPattern>& patterns = rule->gpus->value;
    const bool is_known =
        !product.empty() && std::ranges::none_of(patterns, [](const GpuPattern& pattern) {
          return pattern.index.has_value() || pattern.glob.starts_with("GPU-");
        });
    // The emptied rule is for all GPUs, so that a wider rule does not apply instead.
    if (!is_known) rule->gpus->value.clear();
  };
  forget(&policy.defaults);
  for (PolicyRule& rule : policy.namespaces) forget(&rule);
  return policy;
}

// The mistakes go to the standard error for people, and into the document for programs. `messages` may be fewer than `count`.
Answer Bad(const PolicyCommand& command, const std::vector<std::string>& messages, size_t count) {
  std::string error;
  for (const std::string& message : messages) error += (error.empty() ? "" : "\n") + message;
  if (count > messages.size()) {
    error += "\nand " + std::to_string(count - messages.size()) + " more";
  }
  Answer answer{"", error + "\n", kNotGood};
  if (command.format != Format::kTable) {
    answer.text = FormatDocument(
        {{"file", command.file}, {"good", false}, {"error", error}, {"errors", messages}},
        command.format);
  }
  return answer;
}

}  // namespace

Answer Check(const PolicyCommand& command, const std::optional<Policy>& policy,
             const PolicyMistakes& mistakes) {
  if (!policy) return Bad(command, mistakes.Messages(), mistakes.count());
  std::string text;
  Json gpus = Json::array();
  std::string too_small;
  std::vector<std::string> broken;
  size_t broken_count = 0;
  for (const auto& [product, gpu_bytes] : command.gpus) {
    std::string error;
    const std::string gpu = (product.empty() ? "" : product + " ") + "of " + FormatSize(gpu_bytes);
    std::optional<Capacity> capacity =
        MakeCapacity(gpu, gpu_bytes, command.slots, command.reserve, &error);
    if (!capacity) return {"", "gpuloom: " + error + "\n", kMistake};
    if (error = NothingLeft(*capacity); !error.empty()) too_small += "gpuloom: " + error + "\n";
    capacity->product = product;
    for (ImpossibleRule& rule : ImpossibleRules(WithoutUnknownGpus(*policy, product), *capacity)) {
      if (++broken_count <= PolicyMistakes::kMostKept) broken.push_back(std::move(rule.message));
    }
    text += "a GPU " + gpu + ": " + std::to_string(command.slots) + " slots, " +
            FormatSize(capacity->reserve_bytes) + " kept for the executors, auto is " +
            FormatSize(AutoSlotBytes(*capacity)) + " a slot\n";
    gpus.push_back({{"memory_bytes", gpu_bytes},
                    {"slots", command.slots},
                    {"reserve_bytes", capacity->reserve_bytes},
                    {"auto_slot_bytes", AutoSlotBytes(*capacity)}});
  }
  UnkeptReservations unkept = FindUnkeptReservations(*policy, LayoutOf(command));
  for (ImpossibleRule& rule : unkept.errors) {
    if (++broken_count <= PolicyMistakes::kMostKept) broken.push_back(std::move(rule.message));
  }
  if (!too_small.empty() && broken_count == 0) return {"", too_small, kMistake};
  if (broken_count != 0) {
    Answer answer = Bad(command, broken, broken_count);
    answer.trouble += too_small;
    return answer;
  }
  Json partitions = Json::array();
  text += Partitions(command, *policy, &partitions);
  std::string warnings;
  for (const std::string& warning : unkept.warnings) warnings += "warning: " + warning + "\n";
  if (command.format == Format::kTable) return {text + command.file + ": good\n", warnings, kGood};
  return {FormatDocument({{"file", command.file},
                          {"good", true},
                          {"gpus", gpus},
                          {"partitions", partitions},
                          {"warnings", unkept.warnings}},
                         command.format),
          warnings, kGood};
}

}  // namespace gpuloom
