// SPDX-License-Identifier: Apache-2.0
// The folders that executors write to, one each: named by the scheduler, made by the executor as its
// own user, and removed when it has ended. The scheduler may lack the right to remove another user's files, so a
// process of that user does it: the executor's program, told to. One thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "agent/scheduler/child_process.h"
#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/executor_users.h"

namespace gpuloom::scheduler {

class ExecutorFolders {
 public:
  // An intruder may leave what takes long to remove; it does not keep the scheduler from ending.
  static constexpr std::chrono::seconds kRemovalTimeout{30};

  // `parent` is a folder in which everybody may make one, as /tmp; `program` is gpuloom-executor.
  ExecutorFolders(EventLoop* loop, std::string parent, std::string program);

  // The path of a folder that is not there yet. Random, so that nobody takes it before; no secret.
  std::string NewPath() const;

  // Nothing of `user` is alive. Its number is free again when the folder is gone; where that fails,
  // when this scheduler ends.
  void Remove(const std::string& path, ExecutorUser user);
  // Those that a scheduler left which was killed: of users of ours that nothing alive has.
  void RemoveLeft(const ExecutorUsers& users);
  // SIGCHLD has come.
  void OnChildExit();
  bool removing() const { return !removals_.empty(); }

 private:
  struct Removal {
    ChildProcess process;
    ExecutorUser user;
    Timer deadline;
  };

  EventLoop* loop_;
  std::string parent_;
  std::string program_;
  std::map<std::string, Removal> removals_;  // by path
  std::vector<ExecutorUser> lost_;           // whose folders are still there
};

}  // namespace gpuloom::scheduler
