// SPDX-License-Identifier: Apache-2.0
// A lower bound of how long a session's kernel has been running, from samples of what is at the heads of all streams.
// When a kernel began, or whether it runs at all, cannot be observed: one that waits looks the same. So only the time
// counts in which no known work can have run before it; a kernel is never reported as running for longer than it did:
//
//   another session's work came before it, or together with it     the device begins work in the order in which it
//                                                                  comes: this time does not count
//   other allocations' work of a higher level is or was there       runs first: this time does not count
//   it waits for other work of its own session                      is not watched (AtHead::watched)
//
// Among an allocation's own sessions the first counts as running, and the allocation's own higher levels do not stop
// the count: a tenant must not hide a kernel behind another one of its own.
//
// A value, owned by LongKernels; the executor's ring thread only; one watch for each executor. Nothing fails. Times are
// nanoseconds of any clock that never goes back. docs/design/sharing-time.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agent/arbiter/policy_tree.h"
#include "agent/arbiter/work.h"

namespace gpuloom::arbiter {

// A piece of work of the kernels' engine that is at the head of its stream.
struct AtHead {
  SessionId session{};
  AllocationId allocation{};
  uint64_t piece = 0;     // the number that WorkMeter gave it
  uint64_t since_ns = 0;  // when it came to the head
  uint32_t level = 0;     // higher ones go first
  // Waits for no other work of its session. At most one piece of a session is watched; the others only count as work
  // before other sessions' kernels.
  bool watched = false;
  // If `watched`: how long, in all, the finished work of other allocations and higher levels was at the heads of its
  // streams. Decreases only when sessions end.
  uint64_t higher_ns = 0;
};

class KernelWatch {
 public:
  // Call several times a second while there is work: what two consecutive looks both see counts as present in between.
  void Look(std::span<const AtHead> heads, uint64_t now_ns);
  // For the piece that was watched at the last look; 0 for any other.
  uint64_t ran_ns(SessionId session, uint64_t piece) const;

 private:
  struct Watched {
    bool any = false;
    uint64_t piece = 0;
    bool runs = false;  // at the last look nothing was before it
    uint64_t ran_ns = 0;
    uint64_t looked_ns = 0;
    uint64_t higher_ns = 0;  // until then
  };

  std::vector<Watched> watched_;  // by session
};

}  // namespace gpuloom::arbiter
