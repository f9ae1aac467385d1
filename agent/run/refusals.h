// SPDX-License-Identifier: Apache-2.0
// `gpuloom refusals`: what pods were refused on this machine, by whom and why. The agent records what it refuses the
// kubelet; schedulers count what they refuse running tenants, and their faults. Changes nothing. One thread.
#pragma once

#include <string>
#include <vector>

#include "agent/answer/output.h"
#include "agent/run/scheduler_figures.h"

namespace gpuloom::run {

// Formats the refusals in the agents' files in the folders of `state_dir` (SearchedFolders) and those of these
// schedulers. Bounded: an agent keeps 50 refusals, and a container has one line of each kind, whose names are cut.
std::string FormatAllRefusals(const std::string& state_dir,
                              const std::vector<SchedulerFigures>& schedulers, Format format);

}  // namespace gpuloom::run
