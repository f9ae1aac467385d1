// SPDX-License-Identifier: Apache-2.0
#include "agent/node/size.h"
#include "agent/policy/capacity.h"
#include "agent/policy_command/answers.h"

namespace gpuloom {
namespace {

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
  if (command.format == Format::kTable) return {text + command.file + ": good\n", "", kGood};
  return {FormatDocument({{"file", command.file}, {"good", true}, {"gpus", gpus}}, command.format),
          "", kGood};
}

}  // namespace gpuloom
