// SPDX-License-Identifier: Apache-2.0
// Folders of GPUs that are no longer on the node. Whoever asks about the node's schedulers takes each folder in
// <state>/gpus/ for a GPU's; these lie in <state>/gone-gpus/ instead, with their logs and an operator's order to drain the
// GPU, and are back when it is. Functions without state, called by the agent in charge and by who adds GPUs.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace gpuloom {

// Sets aside the folders of all GPUs but `kept`, and but those in which a scheduler runs; returns whose they were. What
// cannot be moved is logged and stays.
std::vector<std::string> SetAsideGoneGpus(const std::string& state_directory,
                                          const std::set<std::string>& kept);

// Where the folder of this GPU was set aside, it is taken back, unless there is another one.
void TakeBackGpu(const std::string& state_directory, const std::string& gpu_uuid);

}  // namespace gpuloom
