// SPDX-License-Identifier: Apache-2.0
// The part of a session for writing words and waiting for words, in streams and in graphs. Ring thread only.
//
// Each wait is owned by what waits, a stream's command or a graph's launch; this part only divides the looks of a round
// among them. `device_memory` is made before it and outlives it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "agent/executor/session/session_port.h"
#include "agent/executor/stream/stream_command.h"
#include "proto/wire/graph_nodes.h"

namespace gpuloom::executor {

class DeviceMemory;

bool WaitsForValue(const wire::GraphMemoryOperation& operation);

// Progress of a graph node whose operations the host performs.
struct OperationsRun;
using OperationsRunRef = std::shared_ptr<OperationsRun>;

class MemoryOperations final : public Part {
 public:
  MemoryOperations(SessionPort* port, const DeviceMemory* device_memory)
      : Part(port), device_memory_(device_memory) {}

  void On(wire::Tag<wire::StreamWriteValue>, const wire::StreamWriteValue::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::StreamWaitValue>, const wire::StreamWaitValue::Request&,
          const wire::Record&);

  // Performs the operations in order, the first ones at the first call of GoOn.
  using Operations = std::shared_ptr<const std::vector<wire::GraphMemoryOperation>>;
  static OperationsRunRef Begin(Operations operations, wire::StreamId stream);
  // Call in every round; returns true when all are done. Memory that the tenant no longer owns is
  // an error of the stream, and ends the run.
  bool GoOn(const OperationsRunRef& run);

  // Call in each round of the loop: words may be polled again.
  void BeginRound();
  // Call when the session ends.
  void End() { watching_words_ = words_overdue_ = false; }

  // More has to be looked at; with `soon` in the very next round of the loop.
  void KeepWatching(bool soon) {
    watching_words_ = true;
    words_overdue_ |= soon;
  }
  // Returns true if a stream is waiting for a word whose change we have to poll for.
  bool watching_words() const { return watching_words_; }
  // Returns true if there were more words to poll than fit into one round of the loop.
  bool words_overdue() const { return words_overdue_; }

 private:
  friend struct OperationsRun;
  struct WordWatch;
  void PollWord(const std::shared_ptr<WordWatch>& watch);
  // Returns false if no more words may be looked at in this round of the loop. `turn` belongs to the requester, and is
  // 0 at first: it keeps the place of a requester that was refused.
  bool TakePollBudget(uint32_t cost, uint64_t* turn);

  const DeviceMemory* const device_memory_;
  bool watching_words_ = false;
  bool words_overdue_ = false;
  uint32_t poll_budget_ = 0;  // in this round
  // Requests come in the same order in every round, so if there are more of them than a round has looks, the last ones
  // would never get one. So the requester that has been refused for longest gets one more look.
  uint64_t last_turn_ = 0;
  uint64_t first_turn_ = 0;                // the first turn that the last round refused
  uint64_t next_first_turn_ = UINT64_MAX;  // the first that this round has refused so far
};

}  // namespace gpuloom::executor
