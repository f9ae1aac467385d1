// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/long_kernels.h"

#include <algorithm>

#include "agent/executor/device/device.h"
#include "agent/executor/session/session.h"

namespace gpuloom::executor {

// The watch is shown the heads of all sessions, not only of those with a limit: it has to know what
// else was at the device, for that time does not count.
void LongKernels::PollAll(Sessions sessions, uint64_t now_ns) {
  last_poll_ns_ = now_ns;
  const auto is_limited = [](const auto& session) {
    return session->share().kernels != control::KernelTerms{};
  };
  if (std::none_of(sessions.begin(), sessions.end(), is_limited)) return;
  heads_.clear();
  std::vector<const Session*> whose;
  for (const auto& session : sessions) {
    const size_t first = heads_.size();
    session->AddHeads(&heads_);
    whose.resize(heads_.size(), session.get());
    for (size_t i = first; i < heads_.size(); ++i) {
      arbiter::AtHead& head = heads_[i].work;
      if (!head.watched) continue;
      // Kernels of a higher stream priority delay this one. How long they took in all is known only
      // from what of them has ended.
      for (const auto& other : sessions) {
        const Share& share = other->share();
        if (share.allocation == head.allocation) continue;
        for (size_t level = head.level + 1; level < share.ended_ns.size(); ++level) {
          head.higher_ns += share.ended_ns[level];
        }
      }
    }
  }
  work_.clear();
  for (const HeadOfStream& head : heads_) work_.push_back(head.work);
  watch_.Look(work_, now_ns);

  for (size_t i = 0; i < heads_.size(); ++i) {
    if (!heads_[i].work.watched || whose[i]->share().kernels == control::KernelTerms{}) continue;
    const uint64_t ran_ns = watch_.ran_ns(heads_[i].work.session, heads_[i].work.piece);
    uint64_t& last_reported_ns = last_reported_ns_[whose[i]->id()];
    if (ran_ns < last_reported_ns) last_reported_ns = 0;  // another kernel
    if (ran_ns < last_reported_ns + kLongNs) continue;
    last_reported_ns = ran_ns;
    Report(whose[i]->id(), heads_[i], ran_ns);
  }
  std::erase_if(last_reported_ns_, [&](const auto& entry) {
    return std::none_of(sessions.begin(), sessions.end(),
                        [&](const auto& session) { return session->id() == entry.first; });
  });
}

// The scheduler answers at once in most cases, with `ok`; anything else means that the kernel may
// run no longer.
void LongKernels::Report(uint64_t session_id, const HeadOfStream& head, uint64_t ran_ns) {
  control::LongKernel message = {};
  message.session_id = session_id;
  message.kernel = head.work.piece;
  message.ran_ns = ran_ns;
  message.launches = head.launches;
  // At the device, so its library is not unloaded.
  if (const char* name = device_->NameOf(head.kernel)) control::SetText(message.function, name);
  scheduler_->Ask(message, [this, session_id](control::Incoming* in) {
    control::Answer answer;
    if (!in->As(&answer) || answer.ok != 0) return;
    on_too_long_(session_id, {answer.message, control::TextLength(answer.message)});
  });
}

}  // namespace gpuloom::executor
