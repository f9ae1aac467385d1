// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/scheduler.h"

#include <chrono>
#include <utility>

#include "agent/scheduler/handlers.h"
#include "agent/scheduler/log.h"
#include "proto/control/dispatch.h"
#include "proto/wire/query.h"
#include "proto/wire/trace.h"

namespace gpuloom::scheduler {

Scheduler::Scheduler(EventLoop* loop, Device* device, Options options)
    : SchedulerPort(loop, device, std::move(options)),
      turns_(loop, static_cast<uint64_t>(std::chrono::nanoseconds(options_.overrun_limit).count()),
             [this](Executor* executor, uint64_t overran_ns) {
               turn_messages_.EndForOverrun(executor, overran_ns);
             }),
      spare_executors_(this, trust_domains_.book(),
                       [this] {
                         std::string error;  // has been logged
                         return executors_.Start(std::string(), &error) != nullptr;
                       }),
      executors_(
          this,
          {&launcher_, &turns_, &trust_domains_, &own_traces_, &operator_traces_, &spare_executors_,
           &memory_grants_, &session_addresses_, &sessions_},
          [this](Executor* executor, control::Incoming& in) { OnExecutorMessage(executor, in); }),
      allocations_(this,
                   {&turns_, &trust_domains_, &own_traces_, &memory_grants_, &shares_, &sessions_},
                   [this](const AllocationPtr& allocation, TenantConnection connection) {
                     OnConnection(allocation, std::move(connection));
                   }) {
  if (options_.exit_when_unused) {
    // The process that started this one connects at once. If it has died instead, this scheduler
    // ends.
    unused_timer_ = loop_->After(std::chrono::seconds(10), [this] {
      waited_ = true;
      StopIfUnused();
    });
  }
}

bool Scheduler::Listen(std::string* error) {
  if (!controllers_.Listen(error)) return false;
  // Only the one who holds the state folder, and so the socket, may tidy up.
  launcher_.RemoveLeft();
  controllers_.Serve();
  spare_executors_.Schedule();
  return true;
}

void Scheduler::OnExecutorMessage(Executor* executor, control::Incoming& in) {
  const control::Judgement judged = control::Dispatch<control::Route::kExecutorSays>(
      in, [&]<control::Message M>(const M& message) {
        PartWith<M>(accounting_, executors_, long_kernels_, memory_grants_, memory_reclaims_,
                    operator_traces_, session_addresses_, sessions_, shares_, turn_messages_)
            .On(executor, message, in);
      });
  // This never happens by accident: both come from one release, or have agreed on a version.
  if (judged != control::Judgement::kHandled) {
    executors_.Lose(executor, End::kKill, "sent a message of unknown type or size");
  }
}

void Scheduler::OnConnection(const AllocationPtr& allocation, TenantConnection connection) {
  if (connection.hello.magic == wire::kQueryMagic) {
    queries_.AnswerWhenReturned(allocation, std::move(connection));
  } else if (connection.hello.magic == wire::kTraceMagic) {
    own_traces_.Begin(allocation, std::move(connection));
  } else {
    sessions_.Admit(allocation, std::move(connection));
  }
}

Executor* Scheduler::ExecutorFor(const std::string& domain, std::string* error) {
  return executors_.ForDomain(domain, error);
}

void Scheduler::LoseExecutor(Executor* executor, End end, const std::string& reason,
                             const std::string& for_neighbours) {
  executors_.Lose(executor, end, reason, for_neighbours);
}

void Scheduler::ArmIdleTimer(Executor* executor) { executors_.ArmIdleTimer(executor); }

void Scheduler::LetExecutorsLog() { executors_.LetLog(); }

void Scheduler::OnChildExit() {
  executors_.OnChildExit();
  if (!launcher_.removing()) return;
  launcher_.OnChildExit();
  StopIfUnused();
}

void Scheduler::Shutdown() {
  if (shutting_down_) return;
  shutting_down_ = true;
  LogInfo("ending " + std::to_string(registry_.sessions.size()) + " sessions and " +
          std::to_string(registry_.executors.size()) + " executors");
  // No door is left, so nobody comes; sessions end with their executors.
  registry_.allocations.clear();
  executors_.LoseAll("scheduler ends");
  StopIfUnused();
}

// Spare executors do not count: nobody uses them.
bool Scheduler::Unused() const {
  return shutting_down_ ||
         (options_.exit_when_unused && (waited_ || controllers_.was_used()) &&
          registry_.allocations.empty() && controllers_.empty() && registry_.sessions.empty());
}

// Called after everything that may have been the last of something. Executors are asked to end
// first; the loop stops when they and their folders are gone.
void Scheduler::StopIfUnused() {
  if (!Unused()) return;
  if (registry_.executors.empty()) {
    if (launcher_.removing()) return;
    controllers_.Close();
    loop_->Stop();
    return;
  }
  executors_.LoseAll("no longer used");
}

}  // namespace gpuloom::scheduler
