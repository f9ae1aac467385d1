// SPDX-License-Identifier: Apache-2.0
#include "agent/policy_command/policy_command.h"

#include <optional>

#include "agent/policy/policy_file.h"
#include "agent/policy/policy_parser.h"
#include "agent/policy_command/answers.h"

namespace gpuloom {

std::string PathOf(const PolicyCommand& command) {
  return command.file == "-" ? "/dev/stdin" : command.file;
}

Answer AnswerAboutPolicy(const PolicyCommand& command) {
  using Kind = PolicyCommand::Kind;
  // Its file is the agent's, which may be missing without that being a mistake.
  if (command.kind == Kind::kShow) return Show(command);
  std::string error;
  const std::optional<std::string> text =
      ReadPolicyFile(PathOf(command), PolicySource::kAnything, &error);
  if (!text) return {"", "gpuloom: " + error + "\n", kMistake};
  // For kCheck a text that is no policy is the answer; the others need one.
  PolicyMistakes mistakes(command.file);
  const std::optional<Policy> policy = ParsePolicy(*text, &mistakes);
  if (command.kind == Kind::kCheck) return Check(command, policy, mistakes);
  if (!policy) return {"", "gpuloom: " + mistakes.Messages().front() + "\n", kMistake};
  return command.kind == Kind::kExplain ? Explain(command, *policy) : Simulate(command, *policy);
}

}  // namespace gpuloom
