// SPDX-License-Identifier: Apache-2.0
// What a stream's first command waits for.
#include <algorithm>

#include "agent/executor/stream/stream_set.h"

namespace gpuloom::executor {
namespace {

// An event, and what is for ordering only, wait at the device without holding a hardware queue.
bool TakesQueue(const StreamCommand& command) {
  return !std::holds_alternative<NoWork>(command.work) &&
         !std::holds_alternative<RecordWork>(command.work);
}

bool IsEndless(const StreamCommand& command) {
  return std::holds_alternative<LaunchWork>(command.work) ||
         std::holds_alternative<LaunchExWork>(command.work) ||
         std::holds_alternative<GraphWork>(command.work) ||
         std::holds_alternative<ChunkWork>(command.work);
}

}  // namespace

// Submitted is enough: the GPU then waits for the rest (StreamSink::WaitFor). `completed` is looked
// at as well because a stream of this id may have been created anew, with a later ticket.
bool StreamSet::IsSubmitted(const Dependency& dependency) const {
  if (dependency.foreign) return dependency.point->done || dependency.point->event != nullptr;
  const Stream* other = FindAny(dependency.stream);
  // A stream that no longer exists had finished before.
  return other == nullptr || other->submitted >= static_cast<uint64_t>(dependency.ticket) ||
         other->completed >= static_cast<uint64_t>(dependency.ticket);
}

bool StreamSet::AreSubmitted(const std::vector<Dependency>& dependencies) const {
  return std::all_of(dependencies.begin(), dependencies.end(),
                     [this](const Dependency& dependency) { return IsSubmitted(dependency); });
}

bool StreamSet::IsDone(const Dependency& dependency) const {
  if (dependency.point != nullptr && dependency.point->done) return true;
  if (dependency.foreign) return false;
  const Stream* other = FindAny(dependency.stream);
  return other == nullptr || other->completed >= static_cast<uint64_t>(dependency.ticket);
}

bool StreamSet::WouldWait(const Stream& stream, const std::vector<Dependency>& dependencies) const {
  return stream.HoldsUp() ||
         !std::all_of(dependencies.begin(), dependencies.end(),
                      [this](const Dependency& dependency) { return IsDone(dependency); });
}

void StreamSet::NoteQueue(Stream& stream, const StreamCommand& command) {
  const bool waits = WouldWait(stream, command.dependencies);
  if (waits && TakesQueue(command)) {
    in_flight_.HoldQueues(stream, sink_->QueuesFor(command), static_cast<uint64_t>(command.ticket));
  }
  // What is behind a wait lasts as long as the wait.
  if (waits || IsEndless(command)) stream.endless = static_cast<uint64_t>(command.ticket);
}

// If a command waits for many others, the waits that are possible already are passed to CUDA: it
// keeps them until the stream is given work, which is this command.
void StreamSet::SubmitWaitsEarly(Stream& stream) {
  std::vector<Dependency>& dependencies = stream.waiting.front().dependencies;
  // A gated command goes when its dependencies are done, not merely submitted, and then needs no
  // waits.
  if (stream.waiting.front().gate != nullptr || !HasRoom(stream) ||
      !sink_->HasRoom(stream, stream.waiting.front())) {
    return;
  }
  for (size_t i = 0; i < kMaxWaitsAtOnce && dependencies.size() > kMaxWaitsAtOnce; ++i) {
    if (!IsDone(dependencies.back())) {
      // From then on the command waits at the device.
      const QueueNeed need = sink_->QueuesFor(stream.waiting.front());
      if (!IsSubmitted(dependencies.back()) || !in_flight_.MayHoldQueues(stream, need)) return;
      stream.endless = static_cast<uint64_t>(stream.waiting.front().ticket);
      in_flight_.HoldQueues(stream, need, stream.endless);
      sink_->WaitFor(stream, dependencies.back());
    }
    dependencies.pop_back();
    waiting_bytes_ -= sizeof(Dependency);
  }
}

bool StreamSet::IsReady(const Stream& stream, const StreamCommand& command) const {
  if (!HasRoom(stream) ||
      // SubmitWaitsEarly comes first.
      (command.dependencies.size() > kMaxWaitsAtOnce && command.gate == nullptr) ||
      !AreSubmitted(command.dependencies)) {
    return false;
  }
  if (TakesQueue(command) && WouldWait(stream, command.dependencies) &&
      !in_flight_.MayHoldQueues(stream, sink_->QueuesFor(command))) {
    return false;
  }
  return (command.gate == nullptr || PassesGate(stream, command)) &&
         sink_->HasRoom(stream, command);
}

// Opens the gate if everything before the command is known to be done: the stream's own work,
// because in_flight counts until its mark is reached, and each dependency.
bool StreamSet::PassesGate(const Stream& stream, const StreamCommand& command) const {
  Gate& gate = *command.gate;
  if (gate.open) return true;
  if (stream.in_flight != 0) return false;
  for (const Dependency& dependency : command.dependencies) {
    if (!IsDone(dependency)) return false;
  }
  gate.try_open(&gate);
  return gate.open;
}

}  // namespace gpuloom::executor
