// SPDX-License-Identifier: Apache-2.0
// The schedulers of this machine, by the folders in which they have their control sockets. Reads folders only; safe from
// any thread.
#pragma once

#include <string>
#include <vector>

namespace gpuloom::run {

inline constexpr char kAgentsStateDir[] = "/var/lib/gpuloom";

// Where a command looks: `state_dir`, an agent's state folder or that of one scheduler; or, if that is empty, the
// agent's default, those of gpuloom-scheduler@.service and those of this user's `gpuloom run`.
std::vector<std::string> SearchedFolders(const std::string& state_dir);

// The folders below these, and these themselves, in which a scheduler has its control socket, and those that an agent has
// made for its GPUs, whose schedulers may not run. Adds to `unseen` the folders that may not be read, each behind "; ".
std::vector<std::string> FindSchedulers(const std::vector<std::string>& folders,
                                        std::string* unseen);

// Whether an agent has made it for a GPU, so that a scheduler should be there.
bool IsOfAgent(const std::string& folder);

// It should, and none does; not that this user may not ask it.
bool LacksScheduler(const std::string& folder);
// An error: that.
std::string NoSchedulerRuns(const std::string& folder);
// An agent is or was in charge of one of these folders, and has found no GPU.
bool HasNoGpu(const std::vector<std::string>& folders);
inline constexpr char kNoGpu[] = "this node has no GPU to share";
// An error: none is found there.
std::string NoSchedulerFound(const std::vector<std::string>& folders, const std::string& unseen);

}  // namespace gpuloom::run
