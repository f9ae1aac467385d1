// SPDX-License-Identifier: Apache-2.0
// Who has used one engine of a device for how long: each moment in which the engine works is divided equally among the
// owners whose work runs (docs/design/sharing-time.md says why equally). An owner with ten kernels at once counts once,
// like one with a single kernel.
//
// It is given the times at which pieces of work began and ended, by one clock (the device's: events, CUPTI), in any
// order up to a settled moment:
//
//   meter.Begin(owner, start_ns);  meter.End(owner, end_ns);   // as they become known
//   meter.SettleTo(t_ns);         // nothing that happened before t is added after this
//   for (owner of interest) charge = meter.Take(owner);         // since the last Take
//
// Exact: after every SettleTo the sum of what all owners were charged, plus remainder_ns(), is busy_ns(). The remainder
// is less than a nanosecond for each owner that runs, is carried over to the next moment, and is 0 whenever nothing
// runs. Work that still runs is charged up to the settled moment, so a kernel of seconds is charged while it runs.
//
// An edge that comes too late counts as if it were at the settled moment (late_ns() adds up by how much); an End
// without its Begin is ignored and counted (unmatched()). Owners are small numbers of the caller's; a number may be
// reused when nothing of its owner runs. An edge costs O(log of the edges that are not settled), whoever else runs; it
// allocates only when there are more edges or owners than ever before. Plain value, one thread. Nothing fails.
#pragma once

#include <cstdint>
#include <vector>

namespace gpuloom::arbiter {

class BusyMeter {
 public:
  void Begin(uint32_t owner, uint64_t at_ns) { Add(owner, at_ns, true); }
  void End(uint32_t owner, uint64_t at_ns) { Add(owner, at_ns, false); }
  void SettleTo(uint64_t at_ns);

  // What the owner was charged since the last Take.
  uint64_t Take(uint32_t owner);
  // What the owner was charged in all.
  uint64_t charged_ns(uint32_t owner) const;

  uint64_t busy_ns() const { return busy_ns_; }
  uint64_t remainder_ns() const { return remainder_ns_; }
  uint64_t late_ns() const { return late_ns_; }
  uint64_t unmatched() const { return unmatched_; }
  uint32_t running() const { return running_; }  // owners whose work runs at the settled moment

 private:
  struct Edge {
    uint64_t at_ns;
    uint64_t order;  // among edges of the same moment: the order in which they came
    uint32_t owner;
    bool begins;
  };
  struct Owner {
    uint32_t pieces = 0;      // how many run
    uint64_t since = 0;       // each_ns_ when the first of them began
    uint64_t charged_ns = 0;  // by pieces that have ended
    uint64_t taken_ns = 0;
  };

  void Add(uint32_t owner, uint64_t at_ns, bool begins);
  void Advance(uint64_t at_ns);
  static bool Later(const Edge& a, const Edge& b);

  std::vector<Edge> edges_;  // a heap of the edges that are not settled
  std::vector<Owner> owners_;
  uint64_t settled_ns_ = 0;
  uint64_t orders_ = 0;
  uint32_t running_ = 0;
  uint64_t each_ns_ = 0;  // what an owner that had always run would have been charged
  uint64_t remainder_ns_ = 0;
  uint64_t busy_ns_ = 0;
  uint64_t late_ns_ = 0;
  uint64_t unmatched_ = 0;
};

}  // namespace gpuloom::arbiter
