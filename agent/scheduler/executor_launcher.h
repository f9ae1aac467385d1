// SPDX-License-Identifier: Apache-2.0
// Starts the processes of executors, each with its user, its folder and its log, and removes the folders when they are
// dead. A part of the scheduler; its thread only.
#pragma once

#include <string>
#include <utility>

#include "agent/scheduler/executor_folders.h"
#include "agent/scheduler/scheduler_port.h"

namespace gpuloom::scheduler {

class ExecutorLauncher : public Part {
 public:
  explicit ExecutorLauncher(SchedulerPort* port)
      : Part(port),
        folders_(port->loop(), port->options().executor_folders, port->options().executor_path) {}

  // `control`: the executor's end of its connection. Returns false with a message.
  [[nodiscard]] bool Start(Executor* executor, int control, std::string* error);
  // The driver does not start in a fully confined executor: from now on all are started leniently. `reason` is an
  // executor's word.
  void NeedLeniency(const std::string& reason_untrusted);
  // Call when the executor's processes are dead.
  void Remove(Executor* executor) { folders_.Remove(executor->folder, std::move(executor->user)); }
  // Removes the folders that killed schedulers left behind.
  void RemoveLeft() { folders_.RemoveLeft(options_.executor_users); }
  // Called on SIGCHLD.
  void OnChildExit() { folders_.OnChildExit(); }
  bool removing() const { return folders_.removing(); }

 private:
  ExecutorFolders folders_;
  // Learned from the first executor that failed on this GPU.
  bool drivers_need_leniency_ = false;
};

}  // namespace gpuloom::scheduler
