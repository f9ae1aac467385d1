// SPDX-License-Identifier: Apache-2.0
// `gpuloom version`: the release of each part that runs on this machine, and the drivers and libraries that it uses.
// Changes nothing. One thread.
#pragma once

#include <string>
#include <vector>

#include "agent/answer/output.h"
#include "agent/run/executor_program.h"
#include "agent/run/scheduler_figures.h"

namespace gpuloom::run {

// This program and the executors' as it is installed; the agents of the folders of `state_dir` (SearchedFolders), by
// their locks, and the libraries that they have given containers, by their records; these schedulers, with their
// executors and drivers.
std::string FormatVersions(const std::string& state_dir,
                           const std::vector<SchedulerFigures>& schedulers,
                           const ExecutorProgram& executor, Format format);

}  // namespace gpuloom::run
