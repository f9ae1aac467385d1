// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/stream_set.h"

#include <algorithm>
#include <utility>

#include "agent/executor/session/chores.h"
#include "agent/executor/session/slice.h"

namespace gpuloom::executor {
namespace {

// Chunks kept for reuse with their vectors' memory. Further ones are freed.
constexpr size_t kIdleChunks = 64;
// Waiting streams that SubmitWaiting looks at between two looks at the clock.
constexpr size_t kStreamsPerCheck = 64;

// Of what the stream has at CUDA, or on its way there; UINT64_MAX if it has nothing.
uint64_t FirstAtDevice(const Stream& stream) {
  if (!stream.marks.empty()) return stream.marks.front().first_ticket;
  if (stream.unmarked != 0) return stream.unmarked_first;
  return stream.busy ? stream.busy_first : UINT64_MAX;
}

}  // namespace

Stream* StreamSet::Add(wire::StreamId id_untrusted, bool blocking, int priority,
                       wire::Ticket ticket) {
  const auto id = static_cast<uint32_t>(id_untrusted);
  if (id >= streams_.size() || streams_[id] != nullptr) return nullptr;
  streams_[id] = std::make_unique<Stream>();
  Stream* stream = streams_[id].get();
  stream->id = id_untrusted;
  stream->blocking = blocking;
  stream->priority = priority;
  // Nothing is in flight, and everything that is older than the stream counts as done and ordered.
  stream->enqueued = stream->submitted = stream->completed = stream->legacy_behind =
      static_cast<uint64_t>(ticket);
  return stream;
}

Stream* StreamSet::FindAny(wire::StreamId id_untrusted) const {
  const auto id = static_cast<uint32_t>(id_untrusted);
  return id < streams_.size() ? streams_[id].get() : nullptr;
}

Stream* StreamSet::Find(wire::StreamId id_untrusted) const {
  Stream* stream = FindAny(id_untrusted);
  return stream != nullptr && !stream->destroyed ? stream : nullptr;
}

// The legacy stream's barrier. Each side remembers up to which ticket of the other it is ordered
// already, so a dependency is added once, and only the streams that were used since legacy's last
// command are looked at, however many there are.
void StreamSet::AddDependencies(Stream& stream, std::vector<Dependency>* dependencies) {
  if (!stream.blocking) return;
  if (stream.id == wire::kLegacyStream) {
    for (Stream* other : blocking_since_legacy_) {
      if (other->enqueued > other->legacy_behind && other->enqueued > other->completed) {
        dependencies->push_back({other->id, wire::Ticket{other->enqueued}, nullptr});
      }
      other->legacy_behind = other->enqueued;
    }
    blocking_since_legacy_.clear();
    return;
  }
  if (stream.enqueued == stream.legacy_behind) blocking_since_legacy_.push_back(&stream);
  const Stream& legacy = *streams_[static_cast<uint32_t>(wire::kLegacyStream)];
  if (legacy.enqueued > stream.behind_legacy && legacy.enqueued > legacy.completed) {
    dependencies->push_back({legacy.id, wire::Ticket{legacy.enqueued}, nullptr});
  }
  stream.behind_legacy = legacy.enqueued;
}

void StreamSet::SetActive(Stream& stream) {
  if (stream.listed_active) return;
  stream.listed_active = true;
  active_.push_back(&stream);
}

void StreamSet::Enqueue(Stream& stream, StreamCommand&& command) {
  AddDependencies(stream, &command.dependencies);
  if (stream.open != nullptr) Close(stream);
  CloseBefore(command.dependencies);
  stream.enqueued = static_cast<uint64_t>(command.ticket);
  SetActive(stream);
  // The way of most commands: nothing is copied, neither the payload nor the command.
  if (stream.waiting.empty() && command.parts == 1 && CanSubmit(stream, command)) {
    SubmitNow(stream, command);
    return;
  }
  command.OwnPayload();
  waiting_commands_ += command.commands;
  waiting_bytes_ += CostBytes(command);
  Wait(stream, std::move(command));
}

void StreamSet::Wait(Stream& stream, StreamCommand&& command) {
  stream.waiting.push_back(std::move(command));
  if (!stream.listed_waiting) {
    stream.listed_waiting = true;
    waiting_.push_back(&stream);
  }
}

void StreamSet::Collect(Stream& stream, wire::Ticket ticket, const ChunkNode& node,
                        std::span<const uint8_t> params,
                        const std::shared_ptr<const void>& library) {
  AddDependencies(stream, &new_dependencies_);
  if (!new_dependencies_.empty()) {
    // A chunk waits as a whole for whatever its first launch waits for.
    if (stream.open != nullptr) Close(stream);
    CloseBefore(new_dependencies_);
  }
  if (stream.open == nullptr) {
    if (idle_chunks_.empty()) {
      stream.open = std::make_unique<Chunk>();
    } else {
      stream.open = std::move(idle_chunks_.back());
      idle_chunks_.pop_back();
    }
    stream.open->first_ticket = static_cast<uint64_t>(ticket);
    // An open chunk has no dependencies at first, and an old one's were taken by Close: so
    // new_dependencies_ is empty for the next launch.
    stream.open_dependencies.swap(new_dependencies_);
    waiting_bytes_ +=
        sizeof(StreamCommand) + sizeof(Chunk) + DependencyBytes(stream.open_dependencies);
    if (!stream.listed_open) {
      stream.listed_open = true;
      open_.push_back(&stream);
    }
    SetActive(stream);
  }
  stream.enqueued = static_cast<uint64_t>(ticket);
  grown_ = &stream;
  ++waiting_commands_;
  waiting_bytes_ += Chunk::CostBytes(params.size());
  const bool ends = stream.open->Append(node, params, library);
  if (ends || stream.open->size() >= stream.max_chunk) Close(stream);
}

void StreamSet::CloseBefore(const std::vector<Dependency>& dependencies) {
  for (const Dependency& dependency : dependencies) {
    if (dependency.foreign) continue;
    Stream* other = FindAny(dependency.stream);
    if (other != nullptr && other->open != nullptr) Close(*other);
  }
}

// The open chunk becomes a command like others: from now on nothing joins it. If it cannot go yet,
// it stays in the counts of what waits, to which Collect has added it launch by launch.
void StreamSet::Close(Stream& stream) {
  StreamCommand command;
  command.ticket = wire::Ticket{stream.enqueued};
  command.dependencies.swap(stream.open_dependencies);
  command.commands = command.weight = stream.open->size();
  command.work = ChunkWork{std::move(stream.open)};
  if (!stream.waiting.empty() || !CanSubmit(stream, command)) {
    return Wait(stream, std::move(command));
  }
  waiting_commands_ -= command.commands;
  waiting_bytes_ -= CostBytes(command);
  SubmitNow(stream, command);
}

void StreamSet::Flush(bool all) {
  if (open_.empty()) return;
  std::erase_if(open_, [&](Stream* stream) {
    // With !all the chunk that grew last stays open, as more may be in the ring. One that could not
    // go stays too: it may as well grow until it can.
    const bool stays =
        stream->open != nullptr && ((!all && stream == grown_) || !MayClose(*stream) ||
                                    !sink_->MaySubmit(*stream, *stream->open));
    if (!stays && stream->open != nullptr) Close(*stream);
    stream->listed_open = stays;
    return !stays;
  });
}

void StreamSet::Recycle(ChunkPtr chunk) {
  if (idle_chunks_.size() == kIdleChunks) return;
  chunk->Clear();
  idle_chunks_.push_back(std::move(chunk));
}

// If the sink has given the command to another thread, the stream is busy: it takes places in the
// driver's queue at once, one for each launch, but counts as submitted only in OnSubmitted, where
// the true weight is known. Until then HasRoom keeps everything else of the stream back.
void StreamSet::SubmitNow(Stream& stream, StreamCommand& command) {
  const uint64_t first = FirstTicket(command);
  const auto ticket = static_cast<uint64_t>(command.ticket);
  NoteQueue(stream, command);
  sink_->Submit(stream, command);
  if (stream.busy) {
    stream.busy_first = first;
    stream.busy_ticket = ticket;
    stream.busy_commands = command.commands;
    in_flight_.Take(command.commands);
    return;
  }
  in_flight_.Take(command.weight);
  in_flight_.Count(stream, first, ticket, command.commands, command.weight);
}

// A part counts like a command of its own, but the stream's ticket stays. No earlier mark can be
// mistaken for it: its gate waits for all of them.
void StreamSet::SubmitPart(Stream& stream, StreamCommand& command) {
  sink_->Submit(stream, command);
  command.gate->open = false;
  --command.parts;
  in_flight_.Take(1);
  in_flight_.Count(stream, static_cast<uint64_t>(command.ticket), stream.submitted, 1, 1);
}

void StreamSet::OnSubmitted(Stream& stream, uint32_t weight) {
  stream.busy = false;
  stream.tally.Add(std::exchange(stream.busy_tally, {}));
  // The session may have ended meanwhile.
  stream.enqueued = std::max(stream.enqueued, stream.busy_ticket);
  in_flight_.Give(stream.busy_commands);
  in_flight_.Take(weight);
  in_flight_.Count(stream, stream.busy_first, stream.busy_ticket, stream.busy_commands, weight);
}

// Round robin over the streams with waiting commands, again as long as some of them can go on: a
// command that goes may be what another stream's command depends on. waiting_ is cleaned up only at
// the end, so its order and turn_ stay valid meanwhile.
bool StreamSet::SubmitWaiting(Slice* slice, bool one_each) {
  bool any = false;
  size_t last = turn_;
  bool progress = true;
  bool over = false;
  while (progress && !over && !waiting_.empty()) {
    progress = false;
    for (size_t looked = 0; looked < waiting_.size() && !over; ++looked) {
      // Looking at a stream that cannot continue takes time, too.
      if (looked % kStreamsPerCheck == kStreamsPerCheck - 1 && (over = slice->Over())) break;
      turn_ = (turn_ + 1) % waiting_.size();
      Stream* stream = waiting_[turn_];
      ++checked_in_vain_;
      while (!over && !stream->waiting.empty()) {
        if (stream->waiting.front().dependencies.size() > kMaxWaitsAtOnce) {
          const size_t before = stream->waiting.front().dependencies.size();
          SubmitWaitsEarly(*stream);
          progress |= stream->waiting.front().dependencies.size() != before;
        }
        if (!CanSubmit(*stream, stream->waiting.front())) break;
        if (stream->waiting.front().parts != 1) {
          SubmitPart(*stream, stream->waiting.front());
          progress = true;
          over = slice->Over();
          break;
        }
        StreamCommand command = std::move(stream->waiting.front());
        stream->waiting.pop_front();
        waiting_commands_ -= command.commands;
        waiting_bytes_ -= CostBytes(command);
        SubmitNow(*stream, command);
        progress = true;
        last = turn_;
        over = slice->Over();
        if (one_each) break;
      }
    }
    any |= progress;
    if (progress) checked_in_vain_ = 0;
    over = over || (progress && slice->Over());
  }
  // The next call begins behind the last stream that had its turn, not behind the last one looked
  // at.
  if (one_each && any) turn_ = last;
  std::erase_if(waiting_, [](Stream* stream) {
    stream->listed_waiting = !stream->waiting.empty();
    return !stream->listed_waiting;
  });
  return any;
}

uint64_t StreamSet::SlowestCommandNs() const {
  uint64_t slowest_ns = 0;
  for (const Stream* stream : active_) slowest_ns = std::max(slowest_ns, stream->command_ns);
  return slowest_ns;
}

bool StreamSet::AtDevice() const {
  return std::any_of(active_.begin(), active_.end(), [](const Stream* stream) {
    return stream->busy || stream->in_flight != 0 || stream->submitted > stream->completed;
  });
}

bool StreamSet::HasKernelsAtDevice() const {
  return std::any_of(active_.begin(), active_.end(),
                     [](const Stream* stream) { return stream->HasKernelsAtDevice(); });
}

// What was never submitted is forgotten as if it had not been sent: `enqueued` goes back to what
// CUDA has, so that the streams are idle when that is done.
bool StreamSet::DropWaiting() {
  size_t left = Chores::kPiece;
  for (; !waiting_.empty(); waiting_.pop_back()) {
    Stream* stream = waiting_.back();
    for (; !stream->waiting.empty(); stream->waiting.pop_front(), --left) {
      if (left == 0) return false;
      // Other sessions may wait for what now will never be recorded.
      const auto* record = std::get_if<RecordWork>(&stream->waiting.front().work);
      if (record != nullptr) record->point->done = true;
    }
    stream->listed_waiting = false;
    // A busy stream's chunk is put back by OnSubmitted.
    stream->enqueued = stream->submitted;
  }
  for (; !open_.empty(); open_.pop_back()) {
    Stream* stream = open_.back();
    stream->open.reset();
    stream->open_dependencies.clear();
    stream->listed_open = false;
    stream->enqueued = stream->submitted;
  }
  waiting_commands_ = 0;
  waiting_bytes_ = 0;
  return true;
}

// A destroyed stream must be on none of the lists when it is given away. It cannot be on waiting_:
// it is idle, and SubmitWaiting and DropWaiting remove streams that have nothing waiting.
std::vector<std::unique_ptr<Stream>> StreamSet::TakeEnded() {
  std::vector<std::unique_ptr<Stream>> ended;
  const auto has_ended = [](const Stream* stream) { return stream->destroyed && stream->Idle(); };
  if (std::any_of(active_.begin(), active_.end(), has_ended)) {
    std::erase_if(blocking_since_legacy_, has_ended);
    std::erase_if(open_, has_ended);
    in_flight_.ForgetEnded();
  }
  std::erase_if(active_, [&](Stream* stream) {
    if (!stream->Idle()) return false;
    stream->listed_active = false;
    if (stream->destroyed) {
      if (grown_ == stream) grown_ = nullptr;
      ended.push_back(std::move(streams_[static_cast<uint32_t>(stream->id)]));
    }
    return true;
  });
  return ended;
}

std::unique_ptr<Stream> StreamSet::TakeAny() {
  std::unique_ptr<Stream> stream;
  for (; stream == nullptr && !streams_.empty(); streams_.pop_back()) {
    stream = std::move(streams_.back());
  }
  return stream;
}

// Each stream's commands are in order, so only its oldest one counts: of what is at CUDA first, then
// what is on its way there.
uint64_t StreamSet::OldestAtDevice() const {
  uint64_t oldest = UINT64_MAX;
  for (const Stream* stream : active_) oldest = std::min(oldest, FirstAtDevice(*stream));
  return oldest;
}

// Behind that is what waits here.
uint64_t StreamSet::OldestUnfinished() const {
  uint64_t oldest = UINT64_MAX;
  for (const Stream* stream : active_) {
    uint64_t first = FirstAtDevice(*stream);
    if (first != UINT64_MAX) {
      // It is older than what waits.
    } else if (!stream->waiting.empty()) {
      first = FirstTicket(stream->waiting.front());
    } else if (stream->open != nullptr) {
      first = stream->open->first_ticket;
    }
    oldest = std::min(oldest, first);
  }
  return oldest;
}

}  // namespace gpuloom::executor
