// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_kubelet/scenario.h"

#include <yaml-cpp/yaml.h>

#include <set>

#include "absl/strings/str_cat.h"

namespace gpuloom {

absl::StatusOr<std::vector<ScenarioPod>> ParseScenario(const std::string& text) {
  static const std::set<std::string> kKeys = {"namespace", "name", "slots",          "resource",
                                              "command",   "env",  "timeoutSeconds", "after"};
  std::vector<ScenarioPod> pods;
  std::set<std::pair<std::string, std::string>> names;
  int line = 0;
  try {
    const YAML::Node root = YAML::Load(text);
    for (const YAML::Node& node : root["pods"]) {
      line = node.Mark().line + 1;
      for (const auto& entry : node) {
        if (!kKeys.contains(entry.first.as<std::string>())) {
          return absl::InvalidArgumentError(absl::StrCat("line ", entry.first.Mark().line + 1,
                                                         ": unknown key ",
                                                         entry.first.as<std::string>()));
        }
      }
      ScenarioPod pod;
      pod.pod_namespace = node["namespace"].as<std::string>("default");
      pod.name = node["name"].as<std::string>();
      pod.slots = node["slots"].as<int>(1);
      pod.resource = node["resource"].as<std::string>("");
      pod.command = node["command"].as<std::vector<std::string>>();
      if (node["env"]) pod.env = node["env"].as<std::map<std::string, std::string>>();
      pod.timeout_seconds = node["timeoutSeconds"].as<int>(120);
      pod.after = node["after"].as<std::string>("");
      if (pod.command.empty())
        return absl::InvalidArgumentError(absl::StrCat("line ", line, ": empty command"));
      if (!pod.after.empty() && !names.contains({pod.pod_namespace, pod.after})) {
        return absl::InvalidArgumentError(
            absl::StrCat("line ", line, ": no earlier pod ", pod.after));
      }
      if (!names.emplace(pod.pod_namespace, pod.name).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("line ", line, ": pod ", pod.name, " comes twice"));
      }
      pods.push_back(std::move(pod));
    }
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", e.mark.line >= 0 ? e.mark.line + 1 : line, ": ", e.msg));
  }
  if (pods.empty()) return absl::InvalidArgumentError("no pods");
  return pods;
}

}  // namespace gpuloom
