// SPDX-License-Identifier: Apache-2.0
// Finds the schedulers of this machine by the folders of their control sockets. Reads folders only; safe from any
// thread.
#pragma once

#include <string>
#include <vector>

namespace gpuloom::run {

// Where a command looks: `state_dir`, an agent's state folder or that of one scheduler; or, if that is empty, the
// agent's (AgentsStateDir), those of gpuloom-scheduler@.service and those of this user's `gpuloom run`.
std::vector<std::string> SearchedFolders(const std::string& state_dir);

// Returns those of these folders, and of the folders in them, that have a scheduler's control socket, and those that an
// agent has made for its GPUs, whose schedulers may not run. Appends to `unseen` the folders that this user may not
// read, each after "; ".
std::vector<std::string> FindSchedulers(const std::vector<std::string>& folders,
                                        std::string* unseen);

// Whether an agent has made the folder for a GPU, so that a scheduler should run there.
bool IsOfAgent(const std::string& folder);

// Whether a scheduler should run there and none does. False if this user may not connect to it.
bool LacksScheduler(const std::string& folder);
// The error message for that.
std::string NoSchedulerRuns(const std::string& folder);
// An agent is or was in charge of one of these folders, and has found no GPU.
bool HasNoGpu(const std::vector<std::string>& folders);
inline constexpr char kNoGpu[] = "this node has no GPU to share";
// An error: none is found there.
std::string NoSchedulerFound(const std::vector<std::string>& folders, const std::string& unseen);

}  // namespace gpuloom::run
