// SPDX-License-Identifier: Apache-2.0
// How long each executor may have used the device, by the scheduler's clock, and how much of that its sessions have
// been charged. What executors report is untrusted: no engine is ever charged for more time than has passed, and so the
// charges of an engine never add up to more than the time that has passed.
//
// Of the kernels' engine each moment belongs in equal parts to the executors that have a turn in it; a moment in which
// nobody has a turn, to all executors. Of a copy engine, which needs no turn, each moment belongs to all executors, and
// what one does not claim within kKeptNs is there for the others. What an executor reports beyond its part is not lost:
// it can be charged later, as its part grows; but never more than has passed since it was added.
//
// Plain value, owned by Turns; the scheduler's thread only. Time is an argument, in nanoseconds, and never goes back.
// An unknown executor has no part. docs/design/sharing-time.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace gpuloom::scheduler {

class DeviceTime {
 public:
  static constexpr size_t kEngines = 3;  // kernels, copies to the device, copies from it
  // Twice as long as an executor keeps its figures to itself.
  static constexpr uint64_t kKeptNs = 2'000'000'000;

  // Begins without a turn; the executor's part grows from here on.
  void Add(uint64_t executor, uint64_t now_ns);
  void Remove(uint64_t executor, uint64_t now_ns);
  // `has_turn` is false once the executor has no turn and nothing at the device.
  void SetTurn(uint64_t executor, bool has_turn, uint64_t now_ns);

  // The executor's part of the kernels' engine since it was added.
  uint64_t PartNs(uint64_t executor, uint64_t now_ns);

  // Charges as much of `wanted_ns` as the executor's part of the engine's time still has. Returns how much that was.
  uint64_t Charge(uint64_t executor, size_t engine, uint64_t wanted_ns, uint64_t now_ns);

 private:
  // What an executor would have had that had been there from the beginning.
  struct Part {
    uint64_t of_turns_ns = 0;
    uint64_t of_pauses_ns = 0;
    uint64_t of_copies_ns = 0;
  };
  struct Executor {
    bool has_turn = false;
    Part since;            // sum_ when the executor last changed
    uint64_t part_ns = 0;  // its part until then
    uint64_t charged_ns = 0;
    uint64_t added_ns = 0;
    // Of its parts of the copy engines, what it has not claimed; and what it was charged of them.
    std::array<uint64_t, kEngines - 1> kept_ns = {};
    std::array<uint64_t, kEngines - 1> copied_ns = {};
  };

  void Advance(uint64_t now_ns);
  void Settle(Executor* executor);
  uint64_t ChargeCopies(Executor* executor, size_t copy_engine, uint64_t wanted_ns);

  std::map<uint64_t, Executor> executors_;
  uint64_t turns_ = 0;  // executors that have a turn
  Part sum_;
  std::array<uint64_t, kEngines - 1> left_ns_ =
      {};  // of the copy engines, what executors have left to others
  uint64_t now_ns_ = 0;
};

}  // namespace gpuloom::scheduler
