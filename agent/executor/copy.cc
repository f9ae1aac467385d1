// Copies and fills. Every address is judged when the command is read: the device side must lie in
// one of the session's live allocations or its modules' globals, the host side in registered parts
// of its arena (CUDA could block on memory that is not).
#include "agent/executor/session.h"

namespace gpuloom::executor {

bool Session::OwnsDevice(uint64_t address_untrusted, uint64_t size_bytes_untrusted) const {
  return space_.Contains(address_untrusted, size_bytes_untrusted) ||
         accessible_.Contains(address_untrusted, size_bytes_untrusted) ||
         globals_.Contains(address_untrusted, size_bytes_untrusted);
}

void Session::On(wire::Tag<wire::Copy>, const wire::Copy::Request& request,
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
  if (!(to_host ? OwnsHost(request.destination, bytes) : OwnsDevice(request.destination, bytes)) ||
      !(from_host ? OwnsHost(request.source, bytes) : OwnsDevice(request.source, bytes))) {
    return Refuse(wire::Fatal::kBadRange);
  }
  StreamCommand command;
  command.ticket = record.ticket;
  if (bytes != 0) command.work = CopyWork{request};
  streams_.Enqueue(*stream, std::move(command));
}

void Session::On(wire::Tag<wire::CopyInline>, const wire::CopyInline::Request& request,
                 const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  const auto destination = static_cast<uint64_t>(request.destination);
  if (!OwnsDevice(destination, record.payload.size())) return Refuse(wire::Fatal::kBadRange);
  StreamCommand command;
  command.ticket = record.ticket;
  command.payload = record.payload;
  if (!record.payload.empty()) command.work = CopyInlineWork{destination};
  streams_.Enqueue(*stream, std::move(command));
}

void Session::On(wire::Tag<wire::Fill>, const wire::Fill::Request& request,
                 const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  if (request.element_bytes != 1 && request.element_bytes != 2 && request.element_bytes != 4) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(request.count, uint64_t{request.element_bytes}, &bytes) ||
      !(OwnsDevice(request.destination, bytes) || OwnsHost(request.destination, bytes))) {
    return Refuse(wire::Fatal::kBadRange);
  }
  StreamCommand command;
  command.ticket = record.ticket;
  if (bytes != 0) command.work = FillWork{request};
  streams_.Enqueue(*stream, std::move(command));
}

}  // namespace gpuloom::executor
