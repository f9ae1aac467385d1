// SPDX-License-Identifier: Apache-2.0
// The folders that executors write to, one each: named by the scheduler, created by the executor as its own user, and
// removed when it has ended. The scheduler may not be allowed to remove another user's files, so a process of that
// user does it: the executor's program, run for that. One thread.
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
  // An intruder may leave files that take long to remove; that must not keep the scheduler from ending.
  static constexpr std::chrono::seconds kRemovalTimeout{30};
  static constexpr std::chrono::seconds kNextLook{30};
  // A removal that somebody killed, such as the node for its memory, goes on where it was; one that took too long does not.
  static constexpr int kRemovalTries = 3;
  // An intruder may fill the folder in which they lie, and each look must end soon.
  static constexpr int kMostEntries = 4096;

  // `parent` is a folder in which everybody may create one, such as /tmp; `program` is gpuloom-executor.
  ExecutorFolders(EventLoop* loop, std::string parent, std::string program);

  // The path of a folder that does not exist yet. Random, so that no process creates it first; not secret.
  std::string NewPath() const;

  // No process of `user` is alive. Its number is free again when the folder is gone; if removal fails kRemovalTries times,
  // when this scheduler ends.
  void Remove(const std::string& path, ExecutorUser user);
  // From now on removes the folders left by schedulers that were killed, those of our users that no live process has: at
  // once and every kNextLook, because executors end after their scheduler, and one that hangs in the driver long after it.
  // `users` outlives this.
  void RemoveLeft(const ExecutorUsers& users);
  // Called on SIGCHLD.
  void OnChildExit();
  bool removing() const { return !removals_.empty(); }

 private:
  struct Removal {
    ChildProcess process;
    ExecutorUser user;
    Timer deadline;
    int tries = 0;
    bool is_late = false;
  };

  // Returns false if no process could be started.
  bool Start(const std::string& path, Removal& removal);
  void RemoveUnused(const ExecutorUsers& users);

  EventLoop* loop_;
  std::string parent_;
  std::string program_;
  std::map<std::string, Removal> removals_;  // by path
  std::vector<ExecutorUser> lost_;           // users whose folders are still there
  Timer next_look_;
};

}  // namespace gpuloom::scheduler
