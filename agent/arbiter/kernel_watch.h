// SPDX-License-Identifier: Apache-2.0
// For how long a session's kernel has surely been running, told now and then what is at the heads of all streams. Nobody sees
// when a kernel began, or whether it runs: one that waits looks the same. So only time is counted in which nothing known
// can have been before it, and no kernel is ever said to have run for longer than it has:
//
//   another session's work came before it, or together with it     the device begins work in the order in which it
//                                                                  comes: does not count
//   others' work of a higher level is there, or was meanwhile       goes first: that time does not count
//   it waits for other work of its own session                      is not watched (AtHead::watched)
//
// Of an allocation's own sessions the one that came first counts as running, and its own higher levels hold up nobody: a
// tenant must not hide a kernel behind another of its own.
//
// One thread, one watch for each domain. Times are nanoseconds of any clock that never goes back.
// docs/design/sharing-time.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agent/arbiter/policy_tree.h"
#include "agent/arbiter/work.h"

namespace gpuloom::arbiter {

// A piece of the kernels' engine's work that is at the head of its stream.
struct AtHead {
  SessionId session{};
  AllocationId allocation{};
  uint64_t piece = 0;     // WorkMeter's number
  uint64_t since_ns = 0;  // when it came there
  uint32_t level = 0;     // higher ones go first
  // It waits for no other work of its session. At most one of a session; the others only hold up.
  bool watched = false;
  // Of `watched`: how long all work of other allocations and higher levels that has ended was at the heads of its streams, in
  // all. Never falls, but for sessions that go.
  uint64_t higher_ns = 0;
};

class KernelWatch {
 public:
  // Several times a second while there is work: what is seen at two looks one after the other has been there in between.
  void Look(std::span<const AtHead> heads, uint64_t now_ns);
  // As of the last look, of the piece that was watched; 0 for any other.
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
