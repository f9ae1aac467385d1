// SPDX-License-Identifier: Apache-2.0
#include "agent/policy_command/policy_command.h"

#include <optional>

#include "agent/policy/policy_file.h"
#include "agent/policy/policy_parser.h"
#include "agent/policy_command/answers.h"

namespace gpuloom {

PolicyAnswer AnswerAboutPolicy(const PolicyCommand& command) {
  std::string error;
  const std::optional<std::string> text =
      ReadPolicyFile(command.file, PolicySource::kAnything, &error);
  if (!text) return {"", "gpuloom: " + error + "\n", 2};
  const std::optional<Policy> policy = ParsePolicy(command.file, *text, &error);
  if (!policy) return {"", error + "\n", 1};
  switch (command.kind) {
    case PolicyCommand::Kind::kCheck:
      return Check(command, *policy);
    case PolicyCommand::Kind::kExplain:
      return Explain(command, *policy);
    case PolicyCommand::Kind::kSimulate:
      return Simulate(command, *policy);
  }
  return {};
}

}  // namespace gpuloom
