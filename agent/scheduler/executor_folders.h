// SPDX-License-Identifier: Apache-2.0
// The folders that executors write to, one each: named by the scheduler, created by the executor as its own user, and
// removed when it has ended. The scheduler may not have the right to remove another user's files, so a process of that
// user does it: the executor's program, started for that purpose. Owned by Scheduler; its loop's thread only. A folder
// that cannot be removed is logged.
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
  // A removal that somebody killed, for example the kernel for lack of memory, is started again and goes on where it
  // was. One that took too long is not.
  static constexpr int kRemovalTries = 3;
  // An intruder may fill the parent folder, and each look at it must end soon.
  static constexpr int kMostEntries = 4096;

  // `loop` outlives this. `parent` is a folder in which everybody may create one, such as /tmp; `program` is
  // gpuloom-executor.
  ExecutorFolders(EventLoop* loop, std::string parent, std::string program);

  // The path of a folder that does not exist yet. Random, so that no process creates it first; not secret.
  std::string NewPath() const;

  // Call when no process of `user` is alive. Its number is free again when the folder is gone; if removal fails
  // kRemovalTries times, when this scheduler ends.
  void Remove(const std::string& path, ExecutorUser user);
  // From this call on, removes the folders that killed schedulers left behind: those of our users that belong to no
  // live process. It looks at once and then every kNextLook, because executors end after their scheduler, and one that
  // hangs in the driver long after it. `users` outlives this.
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
