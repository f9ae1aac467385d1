// SPDX-License-Identifier: Apache-2.0
// The part of a session for its streams' and graphs' writes of words and waits for words. Ring thread only.
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

// How far a graph's node has come of which the host does the operations.
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

  // Does the operations one after the other, the first ones as GoOn is called first.
  using Operations = std::shared_ptr<const std::vector<wire::GraphMemoryOperation>>;
  static OperationsRunRef Begin(Operations operations, wire::StreamId stream);
  // To be called in every round; true when all are done. Memory that is the tenant's no more is an error of the
  // stream, and ends the run.
  bool GoOn(const OperationsRunRef& run);

  // A round of the loop: words may be looked at again.
  void BeginRound();
  // The session ends.
  void End() { watching_words_ = words_overdue_ = false; }

  // A stream's turn has come to wait for a word, which nobody tells us of.
  bool watching_words() const { return watching_words_; }
  // There were more words to look at than a round of the loop has room for.
  bool words_overdue() const { return words_overdue_; }

 private:
  friend struct OperationsRun;
  struct WordWatch;
  void LookAtWord(const std::shared_ptr<WordWatch>& watch);
  // False: no more in this round of the loop.
  bool TakeLook(uint32_t cost);

  const DeviceMemory* const device_memory_;
  bool watching_words_ = false;
  bool words_overdue_ = false;
  uint32_t looks_left_ = 0;  // in this round
};

}  // namespace gpuloom::executor
