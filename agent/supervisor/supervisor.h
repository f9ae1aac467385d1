// SPDX-License-Identifier: Apache-2.0
// One scheduler per GPU: adopts the one that runs, starts one where none does, starts it again with
// growing pauses. Nothing depends on who started it: a scheduler outlives the agent and is adopted
// by the next.
//
// Owned by main. Tick is called from one thread; Client and IsServing from any. Each scheduler
// lives in <state>/gpus/<uuid>/: its lock, control.sock and scheduler.log.
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
    // A scheduler was connected, for the first time or again; called from Tick, before Client gives
    // it out. A failure counts as a scheduler that does not serve.
    std::function<absl::Status(const std::string& gpu_uuid, SchedulerClient*)> on_connected;
  };

  explicit Supervisor(Options options) : options_(std::move(options)) {}

  // Makes the GPU's directory. Before the first Tick.
  absl::Status AddGpu(const std::string& gpu_uuid);

  // Looks after every scheduler once: a few times a second. Those that this object has started log as much as this
  // process does (LogsMore).
  void Tick(Clock::Time now);

  // Asks the schedulers that this object started to end, and no others. After the last Tick.
  void RequestStop() const;
  // Reaps on the way.
  bool IsAnyRunning();

  // The scheduler of this GPU. Unavailable, with what is known of the reason, while it has none.
  absl::StatusOr<std::shared_ptr<SchedulerClient>> Client(const std::string& gpu_uuid) const;
  bool IsServing(const std::string& gpu_uuid) const { return Client(gpu_uuid).ok(); }

 private:
  struct Watched {
    std::string directory;
    std::shared_ptr<SchedulerClient> client;  // null: none
    std::string trouble = "not started yet";
    pid_t pid = 0;           // of a process that this agent started and has not reaped
    bool logs_more = false;  // it has been told to
    bool is_waiting =
        false;  // not connected yet: to one that was started, or that another process is to start
    Clock::Time waiting_since;
    Backoff backoff;
  };

  void Look(const std::string& gpu_uuid, Watched* watched, Clock::Time now);
  void Start(const std::string& gpu_uuid, Watched* watched, Clock::Time now);
  static void LetLog(Watched* watched);
  void Complain(const std::string& gpu_uuid, Watched* watched, const std::string& trouble);

  const Options options_;
  mutable Mutex
      mutex_;  // guards client and trouble of every entry; the map itself is fixed before Tick
  std::map<std::string, Watched> watched_;
};

}  // namespace gpuloom
