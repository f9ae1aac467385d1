// SPDX-License-Identifier: Apache-2.0
// The policy file, and whether it is what is in force.
#include "agent/node/node_folders.h"
#include "agent/policy_command/policy_command.h"
#include "agent/run/doctor/doctor.h"
#include "agent/run/doctor/look.h"

namespace gpuloom::run {

Findings CheckPolicy(const DoctorCommand& command) {
  PolicyCommand question;
  // The doctor asks what `gpuloom policy show` would say, and judges the answer.
  question.kind = PolicyCommand::Kind::kShow;
  question.format = Format::kJson;
  question.file = command.root + command.policy_file;
  question.state_dir =
      command.root + (command.state_dir.empty() ? AgentsStateDir() : command.state_dir);
  const Json shown = Json::parse(AnswerAboutPolicy(question).text);
  const bool has_file = Exists(question.file);
  // An agent without --policy keeps nothing.
  if (shown["policy"].is_null() && !has_file) {
    return {{"policy", Verdict::kOk,
             "no policy file (" + command.policy_file +
                 ") and none in force: the built-in defaults, if an agent runs here",
             ""}};
  }
  const std::string state = shown["file_state"];
  if (shown["policy"].is_null()) {
    return {{"policy", Verdict::kError,
             "no policy is in force: " + shown["kept_trouble"].get<std::string>(),
             "gpuloom policy check of " + command.policy_file + ", and the agent's log"}};
  }
  if (shown.contains("agent_trouble")) {
    return {{"policy", Verdict::kError, shown["agent_trouble"],
             "kubectl describe and kubectl logs of the node's gpuloom-agent pod"}};
  }
  const std::string since = "in force since " + shown["since"].get<std::string>();
  if (state == "in force" && shown["impossible"].empty()) {
    return {{"policy", Verdict::kOk, command.policy_file + ", " + since, ""}};
  }
  if (state == "in force") {
    Findings findings;
    for (const Json& gpu : shown["impossible"]) {
      findings.push_back({"policy", Verdict::kWarning,
                          command.policy_file + ", " + since + ", but for rules that " +
                              gpu["gpu"].get<std::string>() +
                              " cannot keep to: " + std::to_string(gpu["rules"].get<uint64_t>()),
                          "their pods are refused there, and gpuloom policy show says what to do"});
    }
    return findings;
  }
  const std::string trouble = shown["file_trouble"];
  // The file may be there for the agent alone, in its pod.
  if (state == "unreadable" && !has_file) {
    return {{"policy", Verdict::kWarning,
             "the last good policy, " + since + ", and no policy file: " + trouble,
             "look in the agent's pod, or name the file with --policy"}};
  }
  return {{"policy", Verdict::kError, "the policy file is not what is in force: " + trouble,
           "correct the file; the last good policy, " + since + ", holds until then"}};
}

}  // namespace gpuloom::run
