// SPDX-License-Identifier: Apache-2.0
#include "agent/node/agent_lock.h"

#include <unistd.h>

#include "agent/node/lock_file.h"

namespace gpuloom {
namespace {

std::string PathOf(const std::string& state_directory, const char* name = kAgentLockName) {
  return state_directory + "/" + name;
}

}  // namespace

bool HasHadAgent(const std::string& state_directory) {
  return access(PathOf(state_directory).c_str(), F_OK) == 0;
}

bool LacksAgent(const std::string& state_directory) {
  const std::string lock = PathOf(state_directory);
  if (access(lock.c_str(), R_OK) != 0 || IsLocked(lock)) return false;
  // While one agent replaces another, no process holds this lock for a moment.
  if (IsLocked(PathOf(state_directory, kNextLockName)) ||
      IsLocked(PathOf(state_directory, kLeavingLockName))) {
    return false;
  }
  // An agent that holds one of the other two locks takes this one before it releases the other.
  return !IsLocked(lock);
}

}  // namespace gpuloom
