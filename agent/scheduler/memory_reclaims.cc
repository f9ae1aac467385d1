// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/memory_reclaims.h"

#include <algorithm>
#include <utility>

namespace gpuloom::scheduler {
namespace {

// Between two rounds in which all sessions are asked, so that a full device costs sessions that
// keep nothing little. Short compared with an allocation that has to wait for memory.
constexpr std::chrono::milliseconds kReclaimEvery{2};

// How many requests may wait for the next round: more than the threads of an allocation's programs
// make. Further requests must do with what is free.
constexpr size_t kMostWaiting = 4096;

}  // namespace

// A round in progress may already have passed the sessions that could help, so requests that come
// meanwhile get the next round.
void MemoryReclaims::Reclaim(const Allocation* allocation, std::chrono::milliseconds limit,
                             std::function<void()> then) {
  for (auto& [id, round] : rounds_) {
    if (round.of != allocation) continue;
    if (round.next.size() >= kMostWaiting) return then();
    round.limit = std::max(round.limit, limit);
    round.next.push_back(std::move(then));
    return;
  }
  Begin(allocation, limit, {std::move(then)});
}

void MemoryReclaims::Begin(const Allocation* allocation, std::chrono::milliseconds limit,
                           std::vector<std::function<void()>> then) {
  const uint64_t id = registry_.NextId();
  Round& round = rounds_[id];
  round.of = allocation;
  round.then = std::move(then);
  round.began = EventLoop::Clock::now();
  round.limit = limit;
  // Sessions that wait for their executor have no memory.
  for (const auto& [session_id, session] : registry_.sessions) {
    if (allocation != nullptr && session->allocation.get() != allocation) continue;
    if (session->state == Session::State::kWaiting) continue;
    round.sessions.insert(session_id);
  }
  round.timer = loop_->After(limit, [this, id] { EndRound(id); });
  const std::set<uint64_t> sessions = round.sessions;
  if (sessions.empty()) return EndRound(id);
  for (const uint64_t session_id : sessions) {
    const Session& session = *registry_.sessions.at(session_id);
    // A session that is ending returns everything without being asked.
    if (session.state == Session::State::kEnding || session.executor->peer == nullptr) continue;
    session.executor->peer->Send(0, control::MemoryReclaim{session_id, id});
  }
}

// Called once for each round: all have answered, or time is over. The round stays in the table as
// long as the next one may not begin, so that requests gather for it.
void MemoryReclaims::EndRound(uint64_t round_id) {
  Round& round = rounds_.at(round_id);
  const std::vector<std::function<void()>> then = std::move(round.then);
  round.sessions.clear();
  const auto rest = round.of == nullptr ? round.began + kReclaimEvery - EventLoop::Clock::now()
                                        : EventLoop::Clock::duration::zero();
  round.timer = loop_->After(std::max(rest, EventLoop::Clock::duration::zero()),
                             [this, round_id] { BeginNext(round_id); });
  for (const auto& waiting : then) waiting();
}

void MemoryReclaims::BeginNext(uint64_t round_id) {
  auto ended = rounds_.extract(round_id);
  Round& round = ended.mapped();
  if (!round.next.empty()) Begin(round.of, round.limit, std::move(round.next));
}

// Only who was asked, and only once: an executor can end a round early for its own sessions, not
// for others'.
void MemoryReclaims::NoteReclaimed(uint64_t round_id, uint64_t session_id) {
  const auto it = rounds_.find(round_id);
  if (it == rounds_.end() || it->second.sessions.erase(session_id) == 0) return;
  if (it->second.sessions.empty()) EndRound(round_id);
}

// Ids: NoteReclaimed may end rounds and begin others.
void MemoryReclaims::Forget(uint64_t session_id) {
  std::vector<uint64_t> ids;
  for (const auto& [id, round] : rounds_) ids.push_back(id);
  for (const uint64_t id : ids) NoteReclaimed(id, session_id);
}

size_t MemoryReclaims::waiting_count() const {
  size_t count = 0;
  for (const auto& [id, round] : rounds_) count += round.then.size() + round.next.size();
  return count;
}

void MemoryReclaims::On(Executor* executor, const control::MemoryReclaimed& message,
                        control::Incoming&) {
  if (registry_.FindSession(message.session_id, *executor) == nullptr) return;
  NoteReclaimed(message.reclaim_id, message.session_id);
}

}  // namespace gpuloom::scheduler
