// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/supervisor.h"

#include <signal.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <optional>
#include <set>

#include "agent/cat.h"
#include "agent/node/log.h"
#include "agent/node/log_signals.h"
#include "agent/supervisor/gone_gpus.h"
#include "agent/supervisor/scheduler_process.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

// Loading a driver on a large node takes seconds; past this, something hangs and people should hear
// of it.
constexpr Clock::Duration kStartTimeout = std::chrono::seconds(20);

}  // namespace

absl::Status Supervisor::AddGpu(const std::string& gpu_uuid) {
  Watched watched;
  watched.directory = Cat(options_.state_directory, "/gpus/", gpu_uuid);
  TakeBackGpu(options_.state_directory, gpu_uuid);
  std::error_code error;
  std::filesystem::create_directories(watched.directory, error);
  if (error) return absl::InternalError(Cat("state: ", watched.directory, ": ", error.message()));
  const MutexLock lock(mutex_);
  watched_.emplace(gpu_uuid, std::move(watched));
  return absl::OkStatus();
}

void Supervisor::Tick(Clock::Time now) {
  for (auto& [gpu_uuid, watched] : watched_) Look(gpu_uuid, &watched, now);
  std::set<pid_t> ours;
  for (const auto& [gpu_uuid, watched] : watched_) ours.insert(watched.pid);
  ReapStrays(ours);
}

void Supervisor::RequestStop() const {
  for (const auto& [gpu_uuid, watched] : watched_) {
    if (watched.pid != 0) kill(watched.pid, SIGTERM);
  }
}

bool Supervisor::IsAnyRunning() {
  bool is_any = false;
  for (auto& [gpu_uuid, watched] : watched_) {
    if (watched.pid == 0) continue;
    if (ReapProcess(watched.pid).has_value()) {
      watched.pid = 0;
    } else {
      is_any = true;
    }
  }
  return is_any;
}

absl::StatusOr<std::shared_ptr<SchedulerClient>> Supervisor::Client(
    const std::string& gpu_uuid) const {
  const MutexLock lock(mutex_);
  const auto found = watched_.find(gpu_uuid);
  if (found == watched_.end()) {
    return absl::NotFoundError(
        Cat("supervisor: GPU ", gpu_uuid, " is not in this node's inventory"));
  }
  if (found->second.client == nullptr) {
    return absl::UnavailableError(
        Cat("supervisor: no scheduler for GPU ", gpu_uuid, ": ", found->second.trouble));
  }
  return found->second.client;
}

void Supervisor::Look(const std::string& gpu_uuid, Watched* watched, Clock::Time now) {
  std::optional<std::string> ended;
  if (watched->pid != 0) {
    ended = ReapProcess(watched->pid);
    if (ended.has_value()) watched->pid = 0;
  }
  if (watched->client != nullptr) {
    if (watched->client->IsConnected()) {
      LetLog(watched);
      return;
    }
    watched->backoff.Failed(now);
    Complain(gpu_uuid, watched,
             Cat("it hung up", ended.has_value() ? ": " : "", ended.value_or(""), "; see ",
                 watched->directory, "/scheduler.log"));
    return;
  }
  if (ended.has_value()) {
    watched->is_waiting = false;
    watched->backoff.Failed(now);
    Complain(gpu_uuid, watched,
             Cat(*ended, " at its start; see ", watched->directory, "/scheduler.log"));
    return;
  }
  if (!watched->backoff.MayStart(now) && !watched->is_waiting) return;

  absl::StatusOr<std::shared_ptr<SchedulerClient>> client = options_.connect(watched->directory);
  if (client.ok()) {
    const absl::Status told = options_.on_connected(gpu_uuid, client->get());
    if (!told.ok()) {
      watched->backoff.Failed(now);
      Complain(gpu_uuid, watched, std::string(told.message()));
      return;
    }
    spdlog::info("supervisor: GPU {}: {} scheduler in {}", gpu_uuid,
                 watched->pid != 0 ? "started" : "adopted", watched->directory);
    watched->is_waiting = false;
    watched->backoff.Started(now);
    const MutexLock lock(mutex_);
    watched->client = *std::move(client);
    watched->trouble.clear();
    return;
  }
  const std::string reason(client.status().message());
  if (!absl::IsNotFound(client.status())) {
    // It is there, but refuses or hangs: starting a second one would not get the lock.
    watched->backoff.Failed(now);
    Complain(gpu_uuid, watched, reason);
    return;
  }
  const bool runs = watched->pid != 0 || IsSchedulerLockHeld(watched->directory);
  if (!runs && options_.may_start) {
    watched->is_waiting = false;
    Start(gpu_uuid, watched, now);
    return;
  }
  // It is on its way: that is an error only when it takes long.
  if (!watched->is_waiting) {
    watched->is_waiting = true;
    watched->waiting_since = now;
  } else if (now - watched->waiting_since > kStartTimeout) {
    watched->waiting_since = now;
    Complain(gpu_uuid, watched,
             runs ? Cat("it runs but does not answer: ", reason)
                  : Cat("none has been started, and this agent only adopts: ", reason));
  }
}

void Supervisor::Start(const std::string& gpu_uuid, Watched* watched, Clock::Time now) {
  const absl::StatusOr<pid_t> pid = StartScheduler(options_.command(gpu_uuid, watched->directory),
                                                   watched->directory + "/scheduler.log");
  watched->backoff.Started(now);
  if (!pid.ok()) {
    watched->backoff.Failed(now);
    Complain(gpu_uuid, watched, std::string(pid.status().message()));
    return;
  }
  watched->pid = *pid;
  watched->logs_more = false;
  watched->is_waiting = true;
  watched->waiting_since = now;
}

void Supervisor::LetLog(Watched* watched) {
  // It answers, so it handles the signal, which would otherwise end it.
  if (watched->pid == 0 || watched->logs_more == LogsMore()) return;
  watched->logs_more = LogsMore();
  kill(watched->pid, LogSignal(watched->logs_more));
}

void Supervisor::Complain(const std::string& gpu_uuid, Watched* watched,
                          const std::string& trouble) {
  const MutexLock lock(mutex_);
  if (watched->client != nullptr || watched->trouble != trouble) {
    spdlog::error("supervisor: GPU {}: scheduler: {}; next try in {} ms", gpu_uuid, trouble,
                  watched->backoff.pause().count());
  }
  watched->client.reset();
  watched->trouble = trouble;
}

}  // namespace gpuloom
