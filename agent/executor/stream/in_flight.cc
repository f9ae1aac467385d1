// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/in_flight.h"

#include <algorithm>
#include <utility>

namespace gpuloom::executor {

uint32_t InFlight::MoreQueues(const Stream& stream, const QueueNeed& need) const {
  const uint32_t own = stream.holds_queue ? 0 : 1;
  const bool follows =
      need.queues <= 1 ||
      std::any_of(stream.held_queues.begin(), stream.held_queues.end(),
                  [&](const HeldQueues& held) { return held.graph == need.graph; });
  return follows ? own : own + need.queues - 1;
}

void InFlight::HoldQueues(Stream& stream, const QueueNeed& need, uint64_t ticket) {
  const uint32_t more = MoreQueues(stream, need);
  const uint32_t of_graph = more - (std::exchange(stream.holds_queue, true) ? 0 : 1);
  room_->hardware().Take(allocation_queues_, more);
  held_ += more;
  if (need.queues <= 1) return;
  if (of_graph != 0) {
    stream.held_queues.push_back({need.graph, ticket, of_graph});
    return;
  }
  for (HeldQueues& held : stream.held_queues) {
    if (held.graph == need.graph) held.ticket = ticket;
  }
}

void InFlight::Count(Stream& stream, uint64_t first, uint64_t ticket, uint32_t commands,
                     uint32_t weight) {
  stream.submitted = ticket;
  streams_at_device_ += stream.in_flight == 0;
  stream.in_flight += commands;
  stream.queued += weight;
  // The sink has already marked the command, so AddMark counts it.
  if (!stream.marks.empty() && static_cast<uint64_t>(stream.marks.back().point->ticket) == ticket) {
    Mark& mark = stream.marks.back();
    if (mark.commands == 0) mark.first_ticket = first;
    mark.commands += commands;
    mark.weight += weight;
    return;
  }
  if (stream.unmarked == 0) stream.unmarked_first = first;
  stream.unmarked += commands;
  stream.unmarked_weight += weight;
  if (!stream.listed_unmarked) {
    stream.listed_unmarked = true;
    unmarked_.push_back(&stream);
  }
}

void InFlight::AddMark(Stream& stream, PointRef point, uint64_t now_ns) {
  ++marks_;
  const uint64_t first =
      stream.unmarked != 0 ? stream.unmarked_first : static_cast<uint64_t>(point->ticket);
  stream.marks.push_back({std::move(point), stream.unmarked, stream.unmarked_weight, first, now_ns,
                          ++last_order_, std::exchange(stream.tally, {})});
  const Tally& tally = stream.marks.back().tally;
  stream.kernel_marks += tally.IsKernels() ? 1 : 0;
  stream.long_copy_marks += tally.IsLongCopy() ? 1 : 0;
  stream.unmarked = stream.unmarked_weight = 0;
}

std::vector<Stream*> InFlight::TakeUnmarked() {
  for (Stream* stream : unmarked_) stream->listed_unmarked = false;
  return std::move(unmarked_);
}

// The duration of a command is an average over the mark's commands, and of that a running mean of
// two: it need only tell short from long. From it follows how far ahead the stream may be, see
// kAheadNs.
void InFlight::CompleteOldestMark(Stream& stream, uint64_t now_ns) {
  const Mark& mark = stream.marks.front();
  if (mark.commands != 0) {
    const uint64_t begun_ns = std::max(stream.done_ns, mark.made_ns);
    const uint64_t each_ns = (now_ns - std::min(begun_ns, now_ns)) / mark.commands;
    stream.command_ns = stream.command_ns == 0 ? each_ns : (stream.command_ns + each_ns) / 2;
    stream.max_in_flight = static_cast<uint32_t>(std::clamp<uint64_t>(
        kAheadNs / std::max<uint64_t>(stream.command_ns, 1), kLeastInFlight, kMostInFlight));
    stream.done_ns = now_ns;
  }
  mark.point->done = true;
  stream.completed = static_cast<uint64_t>(mark.point->ticket);
  // Only a mark with commands can be the one with which the stream's last command ends.
  streams_at_device_ -= mark.commands != 0 && stream.in_flight == mark.commands;
  stream.in_flight -= mark.commands;
  stream.queued -= mark.weight;
  Give(mark.weight);
  stream.kernel_marks -= mark.tally.IsKernels() ? 1 : 0;
  stream.long_copy_marks -= mark.tally.IsLongCopy() ? 1 : 0;
  stream.marks.pop_front();
  --marks_;
  std::erase_if(stream.held_queues, [&](const HeldQueues& held) {
    if (held.ticket > stream.completed) return false;
    GiveQueues(held.queues);
    return true;
  });
  if (stream.holds_queue && !stream.HoldsUp()) {
    stream.holds_queue = false;
    GiveQueues(1);
  }
}

void InFlight::ForgetEnded() {
  std::erase_if(unmarked_,
                [](const Stream* stream) { return stream->destroyed && stream->Idle(); });
}

}  // namespace gpuloom::executor
