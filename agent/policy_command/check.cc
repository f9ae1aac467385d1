// SPDX-License-Identifier: Apache-2.0
#include "agent/node/size.h"
#include "agent/policy/capacity.h"
#include "agent/policy_command/answers.h"

namespace gpuloom {

PolicyAnswer Check(const PolicyCommand& command, const Policy& policy) {
  PolicyAnswer answer;
  for (const uint64_t gpu_bytes : command.gpu_bytes) {
    std::string error;
    const std::string gpu = "of " + FormatSize(gpu_bytes);
    const std::optional<Capacity> capacity =
        MakeCapacity(gpu, gpu_bytes, command.slots, command.reserve, &error);
    if (!capacity) return {"", "gpuloom: " + error + "\n", 2};
    const std::string broken = BrokenPromise(policy, *capacity);
    if (!broken.empty()) return {"", broken + "\n", 1};
    answer.text += "a GPU " + gpu + ": " + std::to_string(command.slots) + " slots, " +
                   FormatSize(capacity->reserve_bytes) + " kept for the executors, auto is " +
                   FormatSize(AutoSlotBytes(*capacity)) + " a slot\n";
  }
  answer.text += command.file + ": good\n";
  return answer;
}

}  // namespace gpuloom
