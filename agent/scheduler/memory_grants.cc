// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/memory_grants.h"

#include <algorithm>

#include "agent/scheduler/device.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/memory_reclaims.h"
#include "agent/scheduler/spare_executors.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::scheduler {
namespace {

// Unmapping what a session keeps takes milliseconds; an executor that is busy for longer than this
// makes an allocation fail that might have been served.
constexpr std::chrono::milliseconds kReclaimTimeout{2'000};

// A program that allocates usually does so several times in a row.
constexpr std::chrono::microseconds kMoreComes{1'000};

// When memory comes back in many pieces, waiting requests are tried no more often than this. Too
// short to be felt after a wait.
constexpr std::chrono::milliseconds kOfferEvery{10};

}  // namespace

MemoryGrants::~MemoryGrants() {
  for (auto& [id, session] : registry_.sessions) ReleaseAll(session.get());
}

// Whoever may wait goes into the queue when the device has no room, or at once while the oldest of
// the queue has a turn to itself. Others are answered in any case.
void MemoryGrants::On(Executor* executor, const control::MemoryRequest& message,
                      control::Incoming& in) {
  const uint32_t request = in.header.request;
  WithRoom(executor, message.session_id, message.size_bytes,
           [this, message, request](Executor* requester, Session* session, bool last_try) {
             if (session == nullptr || !MayWait(*session, message.size_bytes)) {
               return Grant(requester, session, message, request, last_try);
             }
             // While it is another allocation's turn, requests that may wait do so.
             if (!last_try && !waiting_.MayOvertake(EventLoop::Clock::now())) {
               Wait(*session, message, request);
             } else if (!Grant(requester, session, message, request, false)) {
               if (!last_try) return false;
               Wait(*session, message, request);
             }
             return true;
           });
}

void MemoryGrants::On(Executor* executor, const control::MemoryCharge& message,
                      control::Incoming& in) {
  const uint32_t request = in.header.request;
  WithRoom(executor, message.session_id, message.size_bytes,
           [this, message, request](Executor* requester, Session* session, bool) {
             control::MemoryGranted granted{};
             granted.session_id = message.session_id;
             granted.size_bytes = message.size_bytes;
             // Charges that outlive their session are kept by the executor, so those are bounded as
             // well.
             const bool may_note = requester->charges.size() < MemoryBook::kMaxPieces;
             const MemoryBook::Grant grant =
                 session == nullptr || !may_note
                     ? MemoryBook::NoGrant()
                     : memory_.Charge(message.size_bytes, &session->memory,
                                      &session->allocation->usage);
             granted.result = grant.result;
             granted.memory_id = grant.memory_id;
             requester->peer->Send(request, granted);
             return true;
           });
}

// Returns false if the device has no room now but may have some later. The quota is the tenant's
// own matter, and answered at once.
bool MemoryGrants::Grant(Executor* executor, Session* session,
                         const control::MemoryRequest& message, uint32_t request, bool last_try) {
  control::MemoryGranted granted{};
  granted.session_id = message.session_id;
  granted.size_bytes = message.size_bytes;
  granted.must_clear = 1;  // no driver promises that what it hands out was not another's before
  MemoryBook::Grant grant = session == nullptr ? MemoryBook::NoGrant()
                                               : memory_.Make(message.size_bytes, &session->memory,
                                                              &session->allocation->usage);
  // The spare piece is memory, too: it is given up before a request is refused.
  if (grant.result == CUDA_ERROR_OUT_OF_MEMORY && session != nullptr &&
      message.size_bytes <= session->allocation->usage.free_bytes() && memory_.spare().Drop()) {
    grant = memory_.Make(message.size_bytes, &session->memory, &session->allocation->usage);
  }
  if (grant.result == CUDA_ERROR_OUT_OF_MEMORY && !last_try &&
      message.size_bytes <= session->allocation->usage.free_bytes()) {
    return false;
  }
  granted.result = grant.result;
  granted.memory_id = grant.memory_id;
  std::vector<channel::UniqueFd> fds;
  if (grant.memory.valid()) fds.push_back(std::move(grant.memory));
  executor->peer->Send(request, granted, std::move(fds));
  if (granted.result != CUDA_SUCCESS) return true;
  loop_->StayAwake(kMoreComes);
  // No spare piece is made while requests wait: it would take the memory that is returned for them.
  if (options_.make_spare_memory && waiting_.empty() &&
      memory_.spare().Note(message.size_bytes, EventLoop::Clock::now())) {
    // After the answer, so that messages which have come meanwhile are served first.
    spare_timer_ = loop_->After({}, [this] {
      memory_.spare().Make();
      spare_timer_ = loop_->After(SpareMemory::kSoon, [this] { (void)memory_.spare().Drop(); });
    });
  }
  return true;
}

bool MemoryGrants::MayWait(const Session& session, uint64_t size_bytes) const {
  const Allocation& allocation = *session.allocation;
  const uint64_t total_bytes = device_->facts().total_memory_bytes;
  const uint64_t others_bytes = total_bytes - std::min(total_bytes, allocation.usage.used_bytes());
  // If all others together could not return enough, waiting is pointless.
  return allocation.memory_wait.count() != 0 && size_bytes != 0 &&
         size_bytes % kGranuleBytes == 0 && size_bytes <= others_bytes &&
         waiting_.HasRoomFor(&allocation);
}

void MemoryGrants::Wait(const Session& session, const control::MemoryRequest& message,
                        uint32_t request) {
  const Allocation& allocation = *session.allocation;
  waiting_.Add({&allocation, session.executor->id, session.id, message.size_bytes, request,
                EventLoop::Clock::now(), allocation.memory_wait});
  LogFor(&session.allocation->lines, LogLevel::kInfo,
         session.Label() + " waits for " + std::to_string(message.size_bytes >> 20) +
             " MiB, which its quota allows and the device has no room for");
  ArmWaitingTimer();
}

// If the executor has ended, the request is dropped.
bool MemoryGrants::GrantWaiting(const MemoryQueue::Request& waiting, bool last_try) {
  Executor* executor = registry_.FindConnected(waiting.executor_id);
  if (executor == nullptr) return true;
  Session* session = registry_.FindServed(waiting.session_id, *executor);
  if (last_try && session != nullptr) {
    LogFor(&session->allocation->lines, LogLevel::kInfo,
           session->Label() + " has waited for " + std::to_string(waiting.size_bytes >> 20) +
               " MiB for as long as its policy's memoryWait");
  }
  return Grant(executor, session, {waiting.session_id, waiting.size_bytes}, waiting.number,
               last_try);
}

// Posted to the loop rather than done here: memory comes back in the middle of other work, and in
// many pieces.
void MemoryGrants::NoteRoom() {
  if (waiting_.empty() || offer_timer_.active()) return;
  const auto next = last_offer_ + kOfferEvery - EventLoop::Clock::now();
  offer_timer_ =
      loop_->After(std::max(next, EventLoop::Clock::duration::zero()), [this] { Offer(); });
}

void MemoryGrants::Offer() {
  last_offer_ = EventLoop::Clock::now();
  // First those whose time is over: they get a last try before anybody else.
  for (const MemoryQueue::Request& one : waiting_.TakeExpired(last_offer_)) {
    (void)GrantWaiting(one, true);
  }
  waiting_.Offer(last_offer_,
                 [this](const MemoryQueue::Request& one) { return GrantWaiting(one, false); });
  ArmWaitingTimer();
}

void MemoryGrants::ArmWaitingTimer() {
  const auto now = EventLoop::Clock::now();
  waiting_timer_.Cancel();
  if (const auto next = waiting_.NextMoment(now)) {
    waiting_timer_ = loop_->After(*next - now, [this] { Offer(); });
  }
}

// Each request is tried a last time. For a session that is ending, that is a refusal (FindServed).
void MemoryGrants::StopWaiting(uint64_t session_id) {
  for (const MemoryQueue::Request& one : waiting_.TakeOf(session_id, EventLoop::Clock::now())) {
    (void)GrantWaiting(one, true);
  }
}

void MemoryGrants::ReleaseAll(Session* session) {
  memory_.ReleaseAll(&session->memory, &session->allocation->usage);
}

// The new limit counts from when each waiting request arrived.
void MemoryGrants::UpdateWait(const Allocation& allocation) {
  waiting_.SetWait(&allocation, allocation.memory_wait);
  ArmWaitingTimer();
}

// The two ways to more room: over the quota, only the allocation's own sessions can return what they keep; under it
// with a full device, all can, and after them spare executors give way. A request that took the first way may need the
// second afterwards. `then` is called again when that is done, with what exists then: session and executor are looked
// up anew.
void MemoryGrants::WithRoom(Executor* executor, uint64_t session_id_untrusted, uint64_t size_bytes,
                            const OnRoom& then) {
  Session* session = registry_.FindServed(session_id_untrusted, *executor);
  const auto retry = [this, executor_id = executor->id, session_id = session_id_untrusted,
                      then](bool last_try) {
    Executor* requester = registry_.FindConnected(executor_id);
    if (requester == nullptr) return true;
    return then(requester, registry_.FindServed(session_id, *requester), last_try);
  };
  const auto again = [retry] { (void)retry(true); };
  const auto of_all = [this, retry, again] {
    reclaims_->Reclaim(nullptr, kReclaimTimeout, [this, retry, again] {
      if (spare_executors_->count() == 0) return again();
      if (!retry(false)) spare_executors_->Without(again);
    });
  };
  if (session == nullptr) {
    then(executor, nullptr, true);
    return;
  }
  const Usage& usage = session->allocation->usage;
  // Nobody else's memory can help here.
  if (size_bytes > usage.quota_bytes()) {
    then(executor, session, true);
  } else if (size_bytes > usage.free_bytes()) {
    const auto has_quota = [this, executor_id = executor->id, session_id = session_id_untrusted,
                            size_bytes] {
      Executor* requester = registry_.FindConnected(executor_id);
      Session* asks = requester == nullptr ? nullptr : registry_.FindServed(session_id, *requester);
      return asks != nullptr && size_bytes <= asks->allocation->usage.free_bytes();
    };
    reclaims_->Reclaim(session->allocation.get(), kReclaimTimeout,
                       [retry, again, of_all, has_quota] {
                         if (!has_quota()) return again();
                         if (!retry(false)) of_all();
                       });
  } else if (!then(executor, session, false)) {
    of_all();
  }
}

// A memory id that is not the session's is no reason to end anybody: the session may have ended in
// between.
void MemoryGrants::On(Executor* executor, const control::MemoryReturn& message,
                      control::Incoming& in) {
  const uint32_t request = in.header.request;
  Session* session = registry_.FindSession(message.session_id, *executor);
  bool returned = session != nullptr &&
                  memory_.Return(message.memory_id, &session->memory, &session->allocation->usage);
  // The charge of a session that has ended.
  if (const auto charge = executor->charges.find(message.memory_id);
      !returned && charge != executor->charges.end()) {
    charge->second.allocation->usage.Discharge(charge->second.size_bytes);
    executor->charges.erase(charge);
    returned = true;
  }
  if (!returned) LogDebug(executor->Label() + " returned memory that is not its session's");
  if (returned) NoteRoom();
  if (request == 0) return;
  control::Answer answer{};
  answer.ok = returned ? 1 : 0;
  if (!returned) control::SetText(answer.message, "memory is not the session's");
  executor->peer->Send(request, answer);
}

void MemoryGrants::On(Executor* executor, const control::MemoryTransfer& message,
                      control::Incoming&) {
  // Both must be sessions of this executor: it cannot give memory to another domain, nor take any.
  Session* from = registry_.FindSession(message.from_session_id, *executor);
  Session* to = registry_.FindSession(message.to_session_id, *executor);
  if (from == nullptr || to == nullptr ||
      !MemoryBook::Transfer(message.memory_id, &from->memory, &from->allocation->usage, &to->memory,
                            &to->allocation->usage)) {
    LogDebug(executor->Label() + " handed on memory that is not its session's");
  }
}

void MemoryGrants::On(Executor* executor, const control::MemoryInfoRequest& message,
                      control::Incoming& in) {
  const uint32_t request = in.header.request;
  control::MemoryInfo info{};
  info.session_id = message.session_id;
  if (const Session* session = registry_.FindSession(message.session_id, *executor);
      session != nullptr) {
    info.free_bytes = session->allocation->usage.free_bytes();
    info.total_bytes = session->allocation->usage.quota_bytes();
  }
  executor->peer->Send(request, info);
}

}  // namespace gpuloom::scheduler
