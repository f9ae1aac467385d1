// SPDX-License-Identifier: Apache-2.0
// Folders of the node that are elsewhere in some installations: what the environment says, which the chart sets in its
// pods, or else the usual ones. Options of a command count before both. Read the environment only; not beside setenv.
#pragma once

#include <string>

namespace gpuloom {

inline constexpr char kStateDirVariable[] = "GPULOOM_STATE_DIR";
inline constexpr char kKubeletDirVariable[] = "GPULOOM_KUBELET_DIR";

// The state folder of the node's agent: /var/lib/gpuloom.
std::string AgentsStateDir();

// The kubelet's folder: /var/lib/kubelet.
std::string KubeletDir();

}  // namespace gpuloom
