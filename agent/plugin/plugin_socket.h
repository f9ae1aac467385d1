// SPDX-License-Identifier: Apache-2.0
// The agents' sockets in the kubelet's directory. Each agent makes one for each resource, under names of its own,
// because two agents serve while one replaces the other. Safe from any thread.
#pragma once

#include <string>
#include <vector>

namespace gpuloom {

// gpuloom-<eight random digits>.sock
std::string MakePluginSocketName();

// The paths of all agents' sockets in the directory, including those of agents that have ended.
std::vector<std::string> ListPluginSockets(const std::string& directory);

// Deletes the sockets on which no process listens.
void RemoveDeadPluginSockets(const std::string& directory);

// Whether a process that this one can see listens there: in a container, its own agent, not that of another container.
bool IsServedNearby(const std::string& socket_path);

}  // namespace gpuloom
