// SPDX-License-Identifier: Apache-2.0
#include "agent/node/agent_lock.h"

#include <unistd.h>

#include "agent/node/lock_file.h"

namespace gpuloom {
namespace {

std::string PathOf(const std::string& state_directory) {
  return state_directory + "/" + kAgentLockName;
}

}  // namespace

bool HasHadAgent(const std::string& state_directory) {
  return access(PathOf(state_directory).c_str(), F_OK) == 0;
}

bool LacksAgent(const std::string& state_directory) {
  const std::string lock = PathOf(state_directory);
  return access(lock.c_str(), R_OK) == 0 && !IsLocked(lock);
}

}  // namespace gpuloom
