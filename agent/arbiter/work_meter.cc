// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/work_meter.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace gpuloom::arbiter {

WorkMeter::Piece WorkMeter::Begin(SessionId session, AllocationId allocation, uint64_t predicted_ns,
                                  uint64_t at_ns, uint64_t alone_ns) {
  const Piece number = pieces_++;
  live_.push_back(
      {number, session, allocation, predicted_ns, std::min(alone_ns, predicted_ns), at_ns});
  if (Index(session) >= charged_.size()) charged_.resize(Index(session) + 1);
  Charged& its = charged_[Index(session)];
  its.allocation = allocation;
  if (!its.listed) {
    its.listed = true;
    listed_.push_back(session);
  }
  return number;
}

// Too late once it is charged as running; the estimate then stays.
void WorkMeter::Delay(Piece piece, uint64_t at_ns) {
  for (Work& work : live_) {
    if (work.number == piece && !work.running) work.since_ns = std::max(work.since_ns, at_ns);
  }
}

// From here on the piece is in both meters, which get its end in End: allocations pay for it, and
// their sessions divide what they pay.
void WorkMeter::Run(Work* work, uint64_t since_ns) {
  work->running = true;
  allocations_.Begin(static_cast<uint32_t>(work->allocation), since_ns);
  sessions_.Begin(static_cast<uint32_t>(work->session), since_ns);
}

WorkMeter::Works::iterator WorkMeter::Find(Piece piece) {
  return std::find_if(live_.begin(), live_.end(),
                      [piece](const Work& work) { return work.number == piece; });
}

// Whatever came later waited for this, so it did not begin earlier than now, if it is another
// session's. A session's own pieces are not excused: they would all be charged to it in any case.
void WorkMeter::Remove(Works::iterator found, uint64_t began_ns, uint64_t at_ns) {
  Work work = *found;  // a copy: a vector moves what is behind it
  for (auto later = live_.erase(found); later != live_.end(); ++later) {
    if (later->session != work.session) later->others_until_ns = at_ns;
  }
  charged_[Index(work.session)].ended_ns = at_ns;
  if (!work.running) Run(&work, began_ns);
  allocations_.End(static_cast<uint32_t>(work.allocation), at_ns);
  sessions_.End(static_cast<uint32_t>(work.session), at_ns);
}

// Earlier pieces that are still there and came together with this one (kTogetherNs) count as behind it, since it ended
// first. The other earlier pieces keep their place before it. Returns since when there was work that it went ahead of.
uint64_t WorkMeter::PassTogether(Works::iterator found, uint64_t at_ns) {
  uint64_t first_ns = found->since_ns;
  for (auto earlier = live_.begin(); earlier != found; ++earlier) {
    if (earlier->session == found->session || earlier->running ||
        earlier->since_ns + kTogetherNs < found->since_ns) {
      continue;
    }
    earlier->others_until_ns = at_ns;
    first_ns = std::min(first_ns, earlier->since_ns);
  }
  return first_ns;
}

Duration WorkMeter::End(Piece piece, uint64_t at_ns) {
  const auto found = Find(piece);
  if (found == live_.end()) return {0, 0};
  const uint64_t first_ns = PassTogether(found, at_ns);
  const uint64_t earliest_ns = std::min(found->since_ns, at_ns);
  const uint64_t latest_ns = std::clamp(found->others_until_ns, earliest_ns, at_ns);
  const uint64_t predicted_ns = at_ns - std::min(at_ns, found->alone_ns);
  const uint64_t began_ns = std::clamp(predicted_ns, earliest_ns, latest_ns);
  // Work that it went ahead of is not charged for the time before it began, so this work is.
  Remove(found, latest_ns == earliest_ns ? std::min(began_ns, first_ns) : began_ns, at_ns);
  return {at_ns - latest_ns, at_ns - earliest_ns};
}

// How much longer it takes. What has outrun its prediction takes as long again, for all that is known.
uint64_t WorkMeter::LeftNs(const Work& work, uint64_t ran_ns) {
  return ran_ns < work.predicted_ns ? work.predicted_ns - ran_ns : work.predicted_ns;
}

// Both lists are in the order in which the pieces came.
bool WorkMeter::HadMore(std::span<const Seen> seen, uint64_t until_ns) const {
  auto next = seen.begin();
  for (const Work& work : live_) {
    if (next != seen.end() && work.number == next->piece) {
      if (next->next_ns < until_ns) return true;
      ++next;
    } else if (work.since_ns < until_ns) {
      return true;
    }
  }
  return false;
}

// For learning, a piece took no more than was predicted: the rest of its part may be time in which the device was idle.
Duration WorkMeter::EndEstimated(const Seen& seen, uint64_t looked_ns, uint64_t after_ns,
                                 uint64_t end_ns) {
  const auto found = Find(seen.piece);
  const uint64_t first_ns = PassTogether(found, end_ns);
  const uint64_t earliest_ns = std::min(found->since_ns, end_ns);
  uint64_t began_ns = std::clamp(std::max(found->others_until_ns, after_ns), earliest_ns, end_ns);
  if (began_ns == earliest_ns) began_ns = std::min(began_ns, first_ns);
  const uint64_t least_ns = std::min(end_ns - began_ns, found->predicted_ns);
  Remove(found, began_ns, end_ns);
  const uint64_t surely_ns = looked_ns - std::min(looked_ns, began_ns);
  return {least_ns, seen.at_ns - earliest_ns, least_ns - std::min(least_ns, surely_ns)};
}

void WorkMeter::EndAsSeen(std::span<Seen> seen, uint64_t looked_ns) {
  for (Seen& it : seen) {
    it.took = End(it.piece, it.at_ns);
    if (looked_ns != 0) it.took.late_ns = it.at_ns - std::min(it.at_ns, looked_ns);
  }
}

void WorkMeter::End(std::span<Seen> seen, uint64_t looked_ns) {
  uint64_t seen_ns = 0;
  for (const Seen& it : seen) seen_ns = std::max(seen_ns, it.at_ns);
  // As a rule: the pieces need not be looked at to know that the time is short.
  if (looked_ns == 0 || seen_ns <= looked_ns + kSeldomNs) return EndAsSeen(seen, looked_ns);
  assert(Find(seen.front().piece) != live_.end());
  const Work& first = *Find(seen.front().piece);
  const uint64_t began_ns = std::max(first.since_ns, first.others_until_ns);
  const uint64_t from_ns = std::max({looked_ns, settled_ns_, began_ns});
  uint64_t left_ns = 0;
  bool predicted = true;
  for (Seen& it : seen) {
    it.left_ns = LeftNs(*Find(it.piece), &it == seen.data() ? from_ns - began_ns : 0);
    left_ns += it.left_ns;
    predicted &= it.left_ns != 0;
  }
  if (!predicted || seen_ns <= from_ns + kSeldomNs) return EndAsSeen(seen, looked_ns);
  const uint64_t gap_ns = seen_ns - from_ns;
  const bool idle = left_ns < gap_ns && !HadMore(seen, from_ns + left_ns);
  const uint64_t divided_ns = idle ? left_ns : gap_ns;
  uint64_t before_ns = 0;
  uint64_t end_ns = 0;  // of the piece before
  for (Seen& it : seen) {
    before_ns += it.left_ns;
    __extension__ using Wide = unsigned __int128;
    const auto part_ns = static_cast<uint64_t>(Wide{divided_ns} * before_ns / left_ns);
    const uint64_t after_ns = std::exchange(end_ns, std::min(from_ns + part_ns, it.at_ns));
    it.took = EndEstimated(it, looked_ns, after_ns, end_ns);
  }
}

// The piece that runs, if the first one, with nothing of another session before it, has been first for long: of those
// that came together with it, the one that takes longest. nullptr: not for long. `others`: the index from which on
// there is work of other sessions.
WorkMeter::Work* WorkMeter::LongFirst(Work* work, size_t others, uint64_t now_ns) {
  const bool alone = others == live_.size();
  const uint64_t since_ns = std::max(work->since_ns, work->others_until_ns);
  if (now_ns < since_ns + (alone ? kTogetherNs : kLongNs)) return nullptr;
  Work* longest = work;
  for (size_t i = others; i < live_.size(); ++i) {
    Work& other = live_[i];
    if (other.session == work->session) continue;
    if (other.since_ns > work->since_ns + kTogetherNs) continue;
    if (other.running) return nullptr;
    if (other.predicted_ns > longest->predicted_ns) longest = &other;
  }
  return longest;
}

void WorkMeter::Settle(uint64_t now_ns) {
  settled_ns_ = now_ns;
  // The first session's pieces, up to another session's: each of these may be running, while what
  // is behind another's may be waiting for it.
  const auto other = std::find_if(live_.begin(), live_.end(), [this](const Work& work) {
    return work.session != live_.front().session;
  });
  const auto others = static_cast<size_t>(other - live_.begin());
  for (size_t i = 0; i < live_.size(); ++i) {
    Work& work = live_[i];
    if (work.running) continue;
    if (Work* runs = i < others ? LongFirst(&work, others, now_ns) : nullptr) {
      Run(runs, std::max(work.since_ns, work.others_until_ns));
    }
    if (!work.running) settled_ns_ = std::min(settled_ns_, work.since_ns);
  }
  // Work that waits behind a very long kernel must not keep everybody's charges open.
  settled_ns_ = std::max(settled_ns_, now_ns - std::min(now_ns, kLatestNs));
  allocations_.SettleTo(settled_ns_);
  sessions_.SettleTo(settled_ns_);
  Divide();
}

// Divides what each allocation was charged among its sessions, in proportion to the time in which their work ran. Runs
// only over the sessions that had work since the last time.
void WorkMeter::Divide() {
  session_ns_.resize(listed_.size());
  for (size_t i = 0; i < listed_.size(); ++i) {
    session_ns_[i] = sessions_.Take(static_cast<uint32_t>(listed_[i]));
  }
  // Rounding remainders go to each allocation's first session in the list; few sessions are listed at a time.
  for (size_t i = 0; i < listed_.size(); ++i) {
    const AllocationId allocation = charged_[Index(listed_[i])].allocation;
    uint64_t left_ns = allocations_.Take(static_cast<uint32_t>(allocation));
    if (left_ns == 0) continue;
    const auto its = [&](size_t k) { return charged_[Index(listed_[k])].allocation == allocation; };
    uint64_t sum_ns = 0;
    for (size_t k = i; k < listed_.size(); ++k) sum_ns += its(k) ? session_ns_[k] : 0;
    for (size_t k = i; k < listed_.size() && sum_ns != 0; ++k) {
      if (!its(k)) continue;
      // Each part is cut from what is left, so that rounding loses nothing.
      __extension__ using Wide = unsigned __int128;
      const auto part = static_cast<uint64_t>(Wide{left_ns} * session_ns_[k] / sum_ns);
      charged_[Index(listed_[k])].ns += part;
      left_ns -= part;
      sum_ns -= session_ns_[k];
    }
    charged_[Index(listed_[i])].ns += left_ns;
  }
  // A session stays listed while it has work or its last end is still to be settled: the meters may
  // yet charge it.
  std::erase_if(listed_, [this](SessionId session) {
    Charged& its = charged_[Index(session)];
    its.listed = its.ended_ns > settled_ns_ ||
                 std::any_of(live_.begin(), live_.end(),
                             [session](const Work& work) { return work.session == session; });
    return !its.listed;
  });
}

uint64_t WorkMeter::Take(SessionId session) {
  if (Index(session) >= charged_.size()) return 0;
  return std::exchange(charged_[Index(session)].ns, 0);
}

}  // namespace gpuloom::arbiter
