// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/scheduler.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "agent/scheduler/log.h"

namespace gpuloom::scheduler {

Scheduler::Scheduler(EventLoop* loop, Device* device, Options options)
    : loop_(loop),
      device_(device),
      options_(std::move(options)),
      memory_(device),
      turns_(
          loop, static_cast<uint64_t>(std::chrono::nanoseconds(options_.overrun_limit).count()),
          [this](Executor* executor, uint64_t overran_ns) { EndForOverrun(executor, overran_ns); }),
      folders_(loop, options_.executor_folders, options_.executor_path),
      book_(options_.domain_linger) {
  if (options_.exit_when_unused) {
    // The process that started this one connects at once. If it has died instead, this scheduler
    // ends.
    unused_timer_ = loop_->After(std::chrono::seconds(10), [this] {
      was_used_ = true;
      LookUnused();
    });
  }
}

Scheduler::~Scheduler() {
  control_watch_.End();
  // Returns the driver's memory; executors see their connections close and exit.
  for (auto& [id, session] : sessions_) {
    memory_.ReleaseAll(&session->memory, &session->allocation->usage);
  }
}

bool Scheduler::Listen(std::string* error) {
  const std::string path = options_.state_dir + "/" + control::kControlSocketName;
  control_listener_ = channel::ListenAt(path.c_str());
  // In addition to the mode, AcceptController checks the user id.
  if (!control_listener_.valid() || chmod(path.c_str(), 0600) != 0) {
    *error = "cannot make the control socket " + path + ": " + strerror(errno);
    return false;
  }
  // Only the one who holds the state folder, and so the socket, may tidy up.
  folders_.RemoveLeft(options_.executor_users);
  control_watch_ =
      loop_->WatchFd(control_listener_.get(), EPOLLIN, [this](uint32_t) { AcceptController(); });
  LookAtSpares();
  return true;
}

void Scheduler::OnChildExit() {
  // Collected first: OnReaped erases from the table. One signal may stand for several children.
  std::vector<std::pair<uint64_t, std::string>> reaped;
  for (auto& [id, executor] : executors_) {
    std::string how;
    if (executor->process.Reap(&how)) reaped.emplace_back(id, how);
  }
  for (const auto& [id, how] : reaped) OnReaped(id, how);
  if (!folders_.removing()) return;
  folders_.OnChildExit();
  LookUnused();
}

void Scheduler::Shutdown() {
  if (shutting_down_) return;
  shutting_down_ = true;
  LogInfo("ending " + std::to_string(sessions_.size()) + " sessions and " +
          std::to_string(executors_.size()) + " executors");
  // No door is left, so nobody comes; sessions end with their executors.
  allocations_.clear();
  std::vector<Executor*> all;
  for (auto& [id, executor] : executors_) all.push_back(executor.get());
  for (Executor* executor : all) LoseExecutor(executor, End::kAsk, "scheduler ends");
  LookUnused();
}

// Spare executors do not count: nobody uses them.
bool Scheduler::Unused() const {
  return shutting_down_ || (options_.exit_when_unused && was_used_ && allocations_.empty() &&
                            controllers_.empty() && sessions_.empty());
}

// Called after everything that may have been the last of something. Executors are asked to end
// first; the loop stops when they and their folders are gone.
void Scheduler::LookUnused() {
  if (!Unused()) return;
  if (executors_.empty()) {
    if (folders_.removing()) return;
    // Nobody may find a socket that is not served: a client that comes later starts another
    // scheduler.
    control_watch_.End();
    unlink((options_.state_dir + "/" + control::kControlSocketName).c_str());
    control_listener_.Reset();
    loop_->Stop();
    return;
  }
  std::vector<Executor*> all;
  for (auto& [id, executor] : executors_) all.push_back(executor.get());
  for (Executor* executor : all) LoseExecutor(executor, End::kAsk, "no longer used");
}

}  // namespace gpuloom::scheduler
