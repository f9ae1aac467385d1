// SPDX-License-Identifier: Apache-2.0
// Keeps one scheduler per GPU running: adopts a running one, starts one where there is none, and restarts it with
// growing pauses. Nothing depends on who started it: a scheduler outlives the agent and is adopted by the next.
//
// Owned by NodeAgent or, with --schedulers only, by main. Client and IsServing are safe from any thread; the rest is
// called from one. Each scheduler has its lock, control.sock and scheduler.log in <state>/gpus/<uuid>/.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/clock.h"
#include "agent/supervisor/backoff.h"
#include "agent/supervisor/scheduler_client.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

class Supervisor {
 public:
  struct Options {
    std::string state_directory;
    bool may_start = true;  // false: only adopt; another process starts them
    // The scheduler's command line for a GPU and its directory.
    std::function<std::vector<std::string>(const std::string& gpu_uuid,
                                           const std::string& directory)>
        command;
    // ConnectToScheduler, or a test's.
    std::function<absl::StatusOr<std::shared_ptr<SchedulerClient>>(const std::string& directory)>
        connect;
    // Called from Tick when a scheduler was connected, for the first time or again, before Client returns it. If it
    // fails, the scheduler counts as not serving.
    std::function<absl::Status(const std::string& gpu_uuid, SchedulerClient*)> on_connected;
  };

  explicit Supervisor(Options options) : options_(std::move(options)) {}

  // Makes the GPU's directory, or takes it back (gone_gpus.h). On Tick's thread; again, it changes nothing.
  absl::Status AddGpu(const std::string& gpu_uuid) GPULOOM_EXCLUDES(mutex_);
  // Of a GPU that is gone no scheduler is started any more; does nothing while one is connected or was started and still
  // runs. On Tick's thread.
  void RemoveGpu(const std::string& gpu_uuid) GPULOOM_EXCLUDES(mutex_);

  // Looks after every scheduler once. Call it a few times a second. The schedulers that this object has started log as
  // much as this process does (LogsMore).
  void Tick(Clock::Time now);

  // Asks the schedulers that this object started, and no others, to end. Call it after the last Tick.
  void RequestStop() const;
  // Whether a scheduler that this object started still runs. Reaps those that have ended.
  bool IsAnyRunning();

  // The client of this GPU's scheduler. Unavailable, with the reason as far as it is known, while there is none.
  absl::StatusOr<std::shared_ptr<SchedulerClient>> Client(const std::string& gpu_uuid) const;
  bool IsServing(const std::string& gpu_uuid) const { return Client(gpu_uuid).ok(); }

 private:
  struct Watched {
    std::string directory;
    std::shared_ptr<SchedulerClient> client;  // null: none
    std::string trouble = "not started yet";
    pid_t pid = 0;           // of a process that this agent started and has not reaped
    bool logs_more = false;  // it was sent the signal to log everything
    bool is_waiting =
        false;  // not connected yet to a scheduler that was started, or that another process must start
    Clock::Time waiting_since;
    Backoff backoff;
  };

  void Look(const std::string& gpu_uuid, Watched* watched, Clock::Time now);
  void Start(const std::string& gpu_uuid, Watched* watched, Clock::Time now);
  static void LetLog(Watched* watched);
  void Complain(const std::string& gpu_uuid, Watched* watched, const std::string& trouble);

  const Options options_;
  // Tick's thread alone changes anything, and reads without it.
  mutable Mutex mutex_;  // guards the map, and client and trouble of every entry, for the others
  std::map<std::string, Watched> watched_;
};

}  // namespace gpuloom
