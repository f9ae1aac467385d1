// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/queries.h"

#include <sys/socket.h>

#include <memory>

#include "agent/scheduler/device.h"
#include "agent/scheduler/device_snapshot.h"
#include "agent/scheduler/memory_reclaims.h"
#include "proto/channel/socket.h"
#include "proto/control/connection.h"
#include "proto/wire/query.h"

namespace gpuloom::scheduler {

static_assert(wire::kMaxProcessUses >= kMaxSessionsPerAllocation);

void Queries::AnswerWhenReturned(const AllocationPtr& allocation, TenantConnection connection) {
  // The connection of each requester stays open meanwhile.
  constexpr size_t kMostAtATime = 64;
  constexpr std::chrono::milliseconds kLimit{100};
  if (allocation->session_count == 0 || reclaims_->waiting_count() >= kMostAtATime) {
    Answer(*allocation, connection);
    return;
  }
  const auto requester = std::make_shared<TenantConnection>(std::move(connection));
  reclaims_->Reclaim(allocation.get(), kLimit,
                     [this, allocation, requester] { Answer(*allocation, *requester); });
}

void Queries::Answer(const Allocation& allocation, const TenantConnection& connection) {
  if (!allocation.bound) {
    RefuseQuery(connection.socket.get(), wire::Admission::kRefused,
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
  for (const auto& [id, session] : registry_.sessions) {
    if (session->allocation.get() != &allocation || session->state != Session::State::kLive) {
      continue;
    }
    // In another pid namespace the same number means another process.
    if (session->pid_namespace_untrusted == 0 || session->own_pid_untrusted <= 0 ||
        session->pid_namespace_untrusted != connection.hello.pid_namespace) {
      continue;
    }
    answer.processes[answer.process_count++] = {session->own_pid_untrusted, 0,
                                                session->memory.size_bytes()};
    if (answer.process_count == wire::kMaxProcessUses) break;
  }
  // If the peer has gone or does not read, only its own answer is lost.
  [[maybe_unused]] const bool sent = channel::SendMessage(connection.socket.get(), &answer,
                                                          sizeof(answer), nullptr, 0, MSG_DONTWAIT);
}

}  // namespace gpuloom::scheduler
