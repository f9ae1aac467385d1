// SPDX-License-Identifier: Apache-2.0
// What fake-kubelet is to do, from YAML:
//
//   pods:
//     - namespace: team-a
//       name: trainer
//       slots: 2
//       resource: gpuloom.io/gpu-x2  # what it asks so many of; optional, single slots
//       command: [/path/to/program, argument]
//       env: {NAME: value}        # optional
//       timeoutSeconds: 60        # optional, 120
//       after: other              # optional: starts when the pod of this name (same namespace) has
//       ended
//
// All pods without `after` are admitted one after another and run at the same time. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuloom {

struct ScenarioPod {
  std::string pod_namespace;
  std::string name;
  int slots = 1;
  std::string resource;  // of which these are; empty: single slots
  std::vector<std::string> command;
  std::map<std::string, std::string> env;
  int timeout_seconds = 120;
  std::string after;
};

// Messages carry the line. Unknown keys are errors.
absl::StatusOr<std::vector<ScenarioPod>> ParseScenario(const std::string& text);

}  // namespace gpuloom
