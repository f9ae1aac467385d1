// SPDX-License-Identifier: Apache-2.0
// Questions about an allocation, without a session (proto/wire/query.h): one answer each, and
// nothing changes.
#include <sys/socket.h>

#include "agent/scheduler/device_snapshot.h"
#include "agent/scheduler/scheduler.h"
#include "proto/channel/socket.h"
#include "proto/control/connection.h"
#include "proto/wire/query.h"

namespace gpuloom::scheduler {

static_assert(wire::kMaxProcessUses >= Scheduler::kMaxSessionsPerAllocation);

void Scheduler::AnswerWhenReturned(const AllocationPtr& allocation, Visitor visitor) {
  // The connection of each requester stays open meanwhile.
  constexpr size_t kMostAtATime = 64;
  constexpr std::chrono::milliseconds kLimit{100};
  size_t waiting = 0;
  for (const auto& [id, round] : reclaims_) waiting += round.then.size() + round.next.size();
  if (allocation->session_count == 0 || waiting >= kMostAtATime) {
    Answer(*allocation, visitor);
    return;
  }
  const auto requester = std::make_shared<Visitor>(std::move(visitor));
  Reclaim(allocation.get(), kLimit,
          [this, allocation, requester] { Answer(*allocation, *requester); });
}

void Scheduler::Answer(const Allocation& allocation, const Visitor& visitor) {
  if (!allocation.bound) {
    RefuseQuery(visitor.socket.get(), wire::Admission::kRefused,
                "allocation not resolved yet: the node's agent has not said which pod this is");
    return;
  }
  wire::QueryAnswer answer{};
  answer.magic = wire::kQueryMagic;
  answer.major = wire::kWireMajor;
  answer.minor = wire::kWireMinor;
  answer.admission = wire::Admission::kAccepted;
  answer.device = MakeSnapshot(device_->facts(), allocation.usage.quota_bytes(), {});
  answer.used_memory_bytes = allocation.usage.used_bytes();
  answer.description = device_->facts().description;
  control::SetText(answer.driver_text, device_->facts().driver_text.c_str());
  for (const auto& [id, session] : sessions_) {
    if (session->allocation.get() != &allocation || session->state != Session::State::kLive) {
      continue;
    }
    // In another pid namespace the same number means another process.
    if (session->pid_namespace_untrusted == 0 || session->own_pid_untrusted <= 0 ||
        session->pid_namespace_untrusted != visitor.hello.pid_namespace) {
      continue;
    }
    answer.processes[answer.process_count++] = {session->own_pid_untrusted, 0,
                                                session->memory.size_bytes()};
    if (answer.process_count == wire::kMaxProcessUses) break;
  }
  // If a visitor has gone or does not read, only its own answer is lost.
  [[maybe_unused]] const bool sent =
      channel::SendMessage(visitor.socket.get(), &answer, sizeof(answer), nullptr, 0, MSG_DONTWAIT);
}

}  // namespace gpuloom::scheduler
