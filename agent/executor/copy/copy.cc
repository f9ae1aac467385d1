// SPDX-License-Identifier: Apache-2.0
// Copies and fills. Every address is judged when the command is read: the device side must lie in
// one of the session's live allocations or its modules' globals, the host side in registered parts
// of its arena (CUDA could block on memory that is not).
#include <utility>

#include "agent/executor/copy/copies.h"
#include "agent/executor/copy/staging.h"
#include "agent/executor/device/device.h"
#include "agent/executor/memory/device_memory.h"
#include "agent/executor/stream/stream_set.h"

namespace gpuloom::executor {

void Copies::On(wire::Tag<wire::Copy>, const wire::Copy::Request& request,
                const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  bool to_host = false;
  bool from_host = false;
  switch (request.kind) {
    case wire::CopyKind::kHostToDevice:
      from_host = true;
      break;
    case wire::CopyKind::kDeviceToHost:
      to_host = true;
      break;
    case wire::CopyKind::kDeviceToDevice:
      break;
    case wire::CopyKind::kHostToHost:
      from_host = to_host = true;
      break;
    default:
      return Refuse(wire::Fatal::kBadArgument);
  }
  const uint64_t bytes = request.size_bytes;
  // A copy of no bytes is judged like any other, and then only orders the stream.
  if (!(to_host ? OwnsHost(request.destination, bytes)
                : device_memory_->OwnsDevice(request.destination, bytes)) ||
      !(from_host ? OwnsHost(request.source, bytes)
                  : device_memory_->OwnsDevice(request.source, bytes))) {
    return Refuse(wire::Fatal::kBadRange);
  }
  if (from_host && to_host && bytes != 0) {
    return EnqueueHostCopy(
        *stream, record.ticket,
        {{request.destination, bytes, bytes}, {request.source, bytes, bytes}, bytes, 1, 1});
  }
  StreamCommand command;
  command.ticket = record.ticket;
  if (bytes != 0) command.work = CopyWork{request};
  streams_.Enqueue(*stream, std::move(command));
}

// A command that submits nothing to CUDA and has a gate: when it is next in its stream, a worker
// makes the copy and then opens the gate.
void Copies::EnqueueHostCopy(Stream& stream, wire::Ticket ticket, const HostBlock& block) {
  StreamCommand command;
  command.ticket = ticket;
  command.gate = std::make_shared<Gate>();
  command.gate->try_open = [this, block, id = stream.id, begun = false](Gate* gate) mutable {
    if (!std::exchange(begun, true)) host_copies_->Copy(block, id, gate->Opener());
  };
  streams_.Enqueue(stream, std::move(command));
}

void Copies::On(wire::Tag<wire::CopyInline>, const wire::CopyInline::Request& request,
                const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  const auto destination = static_cast<uint64_t>(request.destination);
  // The source is the record itself, already in private memory.
  if (!device_memory_->OwnsDevice(destination, record.payload.size()))
    return Refuse(wire::Fatal::kBadRange);
  StreamCommand command;
  command.ticket = record.ticket;
  command.payload = record.payload;
  if (!record.payload.empty()) command.work = CopyInlineWork{destination};
  streams_.Enqueue(*stream, std::move(command));
}

void Copies::On(wire::Tag<wire::Fill>, const wire::Fill::Request& request,
                const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  if (request.element_bytes != 1 && request.element_bytes != 2 && request.element_bytes != 4) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(request.count, uint64_t{request.element_bytes}, &bytes) ||
      !(device_memory_->OwnsDevice(request.destination, bytes) ||
        OwnsHost(request.destination, bytes))) {
    return Refuse(wire::Fatal::kBadRange);
  }
  StreamCommand command;
  command.ticket = record.ticket;
  if (bytes != 0) command.work = FillWork{request};
  streams_.Enqueue(*stream, std::move(command));
}

// A stream of which nothing is staged may go past the session's limit with one: other streams may have used that up, and
// be waiting for this one. Room that others have comes back when the device has made their copies, and the loop then
// looks at all sessions' queues.
bool Copies::HasRoom(const Stream& stream, size_t payload_bytes) const {
  return (stream.staged.empty() ||
          staged_bytes_ + Staging::CostBytes(payload_bytes) <= Staging::kSessionBytes) &&
         services_.staging->HasRoom(*tenant_, payload_bytes);
}

// From pageable memory the driver may keep this thread waiting (staging.h), so the payload is
// copied into pinned memory, for which HasRoom has made it wait.
CUresult Copies::SubmitCopyInline(Stream& stream, const StreamCommand& command,
                                  uint64_t destination) {
  const std::span<const uint8_t> payload = command.payload;
  const uint8_t* source = payload.data();
  if (uint8_t* copy = services_.staging->Copy(tenant_.get(), payload)) {
    stream.staged.push_back({static_cast<uint64_t>(command.ticket), copy, payload.size()});
    staged_bytes_ += Staging::CostBytes(payload.size());
    source = copy;
  }
  // Without pinned memory the source is pageable, which CUDA has copied when the call returns.
  return services_.device->cuda().cuMemcpyHtoDAsync_v2(destination, source, payload.size(),
                                                       stream.cuda);
}

void Copies::FreeStaged(Stream& stream) {
  while (!stream.staged.empty() && stream.staged.front().ticket <= stream.completed) {
    const Staged& staged = stream.staged.front();
    services_.staging->Give(tenant_.get(), staged.copy, staged.size_bytes);
    staged_bytes_ -= Staging::CostBytes(staged.size_bytes);
    stream.staged.pop_front();
  }
}

}  // namespace gpuloom::executor
