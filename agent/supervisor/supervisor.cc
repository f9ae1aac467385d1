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
  // With the umask's mode: the state directory above is 0700.
  std::filesystem::create_directories(watched.directory, error);
  if (error) return absl::InternalError(Cat("state: ", watched.directory, ": ", error.message()));
  const MutexLock lock(mutex_);
  watched_.emplace(gpu_uuid, std::move(watched));
  return absl::OkStatus();
}

void Supervisor::RemoveGpu(const std::string& gpu_uuid) {
  const auto found = watched_.find(gpu_uuid);
  if (found == watched_.end()) return;
  if (found->second.client != nullptr || found->second.pid != 0) return;
  spdlog::info("supervisor: GPU {}: gone; no scheduler is started for it", gpu_uuid);
  const MutexLock lock(mutex_);
  watched_.erase(found);
}

void Supervisor::Tick(Clock::Time now) {
  for (auto& [gpu_uuid, watched] : watched_) Look(gpu_uuid, &watched, now);
  // After the looks, which reap our own. 0 may be among these ids: no process has it.
  std::set<pid_t> ours;
  for (const auto& [gpu_uuid, watched] : watched_) ours.insert(watched.pid);
  ReapStrays(ours);
}

void Supervisor::RequestStop() const {
  for (const auto& [gpu_uuid, watched] : watched_) {
    // Until it is reaped the id cannot be another process's.
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

// The caller shares the client: it may outlive the supervisor's own, whose calls then fail.
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

// Four cases, in this order: one is connected; one has ended before it could be; somebody can be
// connected to; nobody can. Only the last may start one. is_waiting says that one is expected to
// come up, for which no back-off holds: it is looked for at each tick. Of `watched`, the client and
// the trouble are written under mutex_ only; everything else is this thread's.
void Supervisor::Look(const std::string& gpu_uuid, Watched* watched, Clock::Time now) {
  std::optional<std::string> ended;
  if (watched->pid != 0) {
    ended = ReapProcess(watched->pid);
    if (ended.has_value()) watched->pid = 0;
  }
  if (watched->client != nullptr) {
    // What is connected may be another one than the child that has ended: then the child is only
    // reaped.
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
  // The pause is for connecting, too: a scheduler that refuses is not asked five times a second.
  if (!watched->backoff.MayStart(now) && !watched->is_waiting) return;

  absl::StatusOr<std::shared_ptr<SchedulerClient>> client = options_.connect(watched->directory);
  if (client.ok()) {
    // Without mutex_: it tells every allocation, which may take seconds, and Client must not wait
    // for that.
    const absl::Status result = options_.on_connected(gpu_uuid, client->get());
    if (!result.ok()) {
      watched->backoff.Failed(now);
      Complain(gpu_uuid, watched, std::string(result.message()));
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
  // A scheduler takes its lock before it listens. Without looking at it, a second one would be
  // started, and fail, while the first one, another agent's, comes up.
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
  // Only that it cannot be executed is known at once; other failures are in its log.
  const absl::StatusOr<pid_t> pid = StartScheduler(options_.command(gpu_uuid, watched->directory),
                                                   watched->directory + "/scheduler.log");
  watched->backoff.Started(now);
  if (!pid.ok()) {
    watched->backoff.Failed(now);
    Complain(gpu_uuid, watched, std::string(pid.status().message()));
    return;
  }
  watched->pid = *pid;
  // It begins with what its command line says.
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
  // The same trouble at each try is one line. After a time in which it served it is news again.
  if (watched->client != nullptr || watched->trouble != trouble) {
    spdlog::error("supervisor: GPU {}: scheduler: {}; next try in {} ms", gpu_uuid, trouble,
                  watched->backoff.pause().count());
  }
  watched->client.reset();
  watched->trouble = trouble;
}

}  // namespace gpuloom
