// SPDX-License-Identifier: Apache-2.0
// `gpuloom refusals`: what pods were refused on this machine and why, by whomever. The agent writes down what it refuses the
// kubelet; schedulers count what they refuse tenants that are there, and what ended in a fault. Changes nothing. One thread.
#pragma once

#include <string>
#include <vector>

#include "agent/answer/output.h"
#include "agent/run/scheduler_figures.h"

namespace gpuloom::run {

// Of the agents' files in the folders of `state_dir` (SearchedFolders) and of these schedulers. Bounded: an agent keeps 50
// refusals, and a container has one line of each kind, whose names are cut.
std::string FormatAllRefusals(const std::string& state_dir,
                              const std::vector<SchedulerFigures>& schedulers, Format format);

}  // namespace gpuloom::run
