// SPDX-License-Identifier: Apache-2.0
// How long each executor may have used the device, by the scheduler's clock, and what of that its sessions have been
// charged. What executors report is untrusted: no engine is ever charged for more time than has passed, and so all
// charges together are what the engine was busy for.
//
// Each moment belongs to the executors that have a turn in it, in equal parts; one in which nobody has a turn, to all.
// What an executor reports beyond its part is not lost: it can be charged later, as its part grows.
//
// One thread; time is an argument, in nanoseconds, and never goes back. An unknown executor has no part.
// docs/design/sharing-time.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace gpuloom::scheduler {

class DeviceTime {
 public:
  static constexpr size_t kEngines = 3;  // kernels, copies to the device, copies from it

  // From now on it may have a part. Without a turn.
  void Add(uint64_t executor, uint64_t now_ns);
  void Remove(uint64_t executor, uint64_t now_ns);
  // It has a turn, or has none any more and nothing at the device.
  void SetTurn(uint64_t executor, bool has_turn, uint64_t now_ns);

  // The executor's part since it was added.
  uint64_t PartNs(uint64_t executor, uint64_t now_ns);

  // Charges as much of `wanted_ns` as the executor's part of the engine's time still has. Returns how much that was.
  uint64_t Charge(uint64_t executor, size_t engine, uint64_t wanted_ns, uint64_t now_ns);

 private:
  // What one that had always been there would have had.
  struct Part {
    uint64_t of_turns_ns = 0;
    uint64_t of_pauses_ns = 0;
  };
  struct Executor {
    bool has_turn = false;
    Part since;            // the sums when it last changed
    uint64_t part_ns = 0;  // until then
    std::array<uint64_t, kEngines> charged_ns = {};
  };

  void Advance(uint64_t now_ns);
  void Settle(Executor* executor) const;

  std::map<uint64_t, Executor> executors_;
  uint64_t turns_ = 0;  // executors that have one
  Part sum_;
  uint64_t now_ns_ = 0;
};

}  // namespace gpuloom::scheduler
