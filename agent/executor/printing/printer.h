// SPDX-License-Identifier: Apache-2.0
// Decides which session's kernels may print. The device has one printf buffer, which does not record who wrote to it,
// so kernels that may print (of libraries that name vprintf) take turns by session. A session's turn ends when its
// printing launches are done and their text has been taken out; while another session waits it may launch no more of
// them. A session that is alone never waits.
//
// The driver writes the text to stdout when a stream is synchronised, whatever other work is
// running; a worker does that after each printing launch, before its completion is published, so
// that the text is there when the tenant's call returns.
//
// A session that is first in the queue but does not launch when the printer is free, because its share of the device's
// time is used up or the device has no room for it, is passed over. It keeps its place, and counts again with its next
// call of MayPrint.
//
// A kernel that never ends keeps the turn: other sessions' printing kernels wait for it.
//
// Owned by the loop; ring thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/executor/printing/driver_output.h"
#include "agent/node/line_budget.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

class Device;
class Lane;
class WorkPool;

class Printer {
 public:
  // `output` may be null: nothing is captured.
  Printer(Device* device, WorkPool* pool, DriverOutput* output);
  ~Printer();

  // How long a free printer waits for the first session in the queue: some rounds of the loop, and sleeps between them.
  static constexpr uint64_t kPatienceNs = 20'000'000;

  // Returns false if it is another session's turn; then this one is queued, and calls again later.
  bool MayPrint(uint64_t session, uint64_t now_ns);
  // The same without queueing, for a session that could not launch at once.
  bool IsTurnOf(uint64_t session, uint64_t now_ns);
  // Queued, and not passed over.
  bool Waits(uint64_t session) const;
  bool AnyWaits() const;
  // Call when a launch that may print is submitted to CUDA, right after MayPrint has allowed it.
  void Began(uint64_t session);
  // Call when this many launches are done and their text has been taken.
  void Ended(uint32_t launches);
  // Call when the session does not wait any more, or cannot go for as long as somebody likes.
  void Forget(uint64_t session) {
    std::erase_if(waiting_, [session](const Waiting& one) { return one.session == session; });
  }

  // Calls `done` with what was printed up to `reached`, an event that is already complete.
  void Flush(CUevent reached, std::function<void(std::string)> done);

 private:
  struct Waiting {
    uint64_t session;
    // Since when the printer is free and another session waits for this one.
    std::optional<uint64_t> blocks_ns = {};
    bool passed = false;
  };

  Device* const device_;
  DriverOutput* const output_;
  const std::unique_ptr<Lane> lane_;
  CUstream stream_ = nullptr;  // created by the first flush
  LineBudget lines_;
  uint64_t owner_ = 0;
  uint32_t launches_ = 0;  // the owner's launches that have begun and not ended
  std::deque<Waiting> waiting_;
};

}  // namespace gpuloom::executor
