// SPDX-License-Identifier: Apache-2.0
// The sockets of agents in the kubelet's directory. Each agent makes one for each resource, under
// names of its own, because two of them serve while one replaces the other. Safe from any thread.
#pragma once

#include <string>
#include <vector>

namespace gpuloom {

// gpuloom-<eight random digits>.sock
std::string MakePluginSocketName();

// Paths of all agents' sockets in the directory, those of agents that have ended included.
std::vector<std::string> ListPluginSockets(const std::string& directory);

// Deletes those on which no process listens any more.
void RemoveDeadPluginSockets(const std::string& directory);

// Whether a process listens there that this one can see: in a container, its own agent and not
// that of another container.
bool IsServedNearby(const std::string& socket_path);

}  // namespace gpuloom
