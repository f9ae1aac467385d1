// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/kernel_watch.h"

#include <algorithm>

#include "agent/arbiter/work_meter.h"

namespace gpuloom::arbiter {
namespace {

// `other` may run while `watched` waits for it. Of one allocation the order of the pieces decides:
// there the first one counts as running, whatever came with it. Of others, what came within
// kTogetherNs may have been begun first, as in the work meter.
bool IsBefore(const AtHead& other, const AtHead& watched) {
  if (other.session == watched.session) return false;
  return other.allocation == watched.allocation
             ? other.piece < watched.piece
             : other.since_ns <= watched.since_ns + WorkMeter::kTogetherNs;
}

}  // namespace

void KernelWatch::Look(std::span<const AtHead> heads, uint64_t now_ns) {
  for (const AtHead& head : heads) {
    if (!head.watched) continue;
    bool runs = true;
    // Time at the heads of streams with a higher level, ended and present together. It grows by at
    // most what passes, for each such piece, so its difference between two looks bounds what went
    // before.
    uint64_t higher_ns = head.higher_ns;
    for (const AtHead& other : heads) {
      runs = runs && !IsBefore(other, head);
      if (other.allocation != head.allocation && other.level > head.level) {
        higher_ns += now_ns - std::min(now_ns, other.since_ns);
      }
    }
    if (Index(head.session) >= watched_.size()) watched_.resize(Index(head.session) + 1);
    Watched& its = watched_[Index(head.session)];
    // A piece that was not watched at the last look: nothing is known of the time before this one.
    if (!its.any || its.piece != head.piece) {
      its = {true, head.piece, false, 0, now_ns, higher_ns};
    } else if (its.runs && runs) {
      // Nothing was before it at both looks; what came and went in between on a higher level is
      // subtracted.
      const uint64_t passed_ns = now_ns - its.looked_ns;
      const uint64_t before_ns = higher_ns - std::min(higher_ns, its.higher_ns);
      its.ran_ns += passed_ns - std::min(passed_ns, before_ns);
    }
    its.runs = runs;
    its.looked_ns = now_ns;
    its.higher_ns = higher_ns;
  }
}

uint64_t KernelWatch::ran_ns(SessionId session, uint64_t piece) const {
  if (Index(session) >= watched_.size()) return 0;
  const Watched& its = watched_[Index(session)];
  return its.any && its.piece == piece ? its.ran_ns : 0;
}

}  // namespace gpuloom::arbiter
