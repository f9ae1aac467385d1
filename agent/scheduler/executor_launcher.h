// SPDX-License-Identifier: Apache-2.0
// Starts the processes of executors, each with its user, its folder and its log, and removes the folders when they are
// dead. A part of the scheduler; its thread only. Process, log and folder's name are the Executor's, which the registry
// owns; this part keeps a folder from Remove on, until it is deleted.
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
  // Call for each executor that is ready.
  void NoteReady(const Executor& executor);
  // Call when the driver did not start in an executor, for a reason that confinement may be. Returns true if that was
  // not the executor's fault: a lenient one is tried in its place.
  [[nodiscard]] bool NoteDriverFailed(const Executor& executor,
                                      const std::string& reason_untrusted);
  // Call when the executor's processes are dead.
  void Remove(Executor* executor) { folders_.Remove(executor->folder, std::move(executor->user)); }
  // Removes the folders that killed schedulers left behind.
  void RemoveLeft() { folders_.RemoveLeft(options_.executor_users); }
  // Called on SIGCHLD.
  void OnChildExit() { folders_.OnChildExit(); }
  bool removing() const { return folders_.removing(); }

 private:
  // What passes, as a GPU that is lost for a moment, must not leave executors without full confinement.
  enum class Leniency {
    kUntried,  // no fully confined executor was ready yet
    kOnce,     // one has failed: the next executor is lenient, and the one after it is not
    kNeeded,   // one has failed while a lenient one was ready, or twice before one that was
    kNever,    // one was ready: failed starts have other reasons
  };

  ExecutorFolders folders_;
  Leniency leniency_ = Leniency::kUntried;
  int lenient_ready_ = 0;  // how many lenient ones were
};

}  // namespace gpuloom::scheduler
