#include <algorithm>

#include "agent/executor/session.h"

namespace gpuloom::executor {

void Session::On(wire::Tag<wire::StreamCreate>, const wire::StreamCreate::Request& request,
                 const wire::Record& record) {
  if (request.stream == wire::kLegacyStream) return Refuse(wire::Fatal::kBadHandle);
  // The CUDA stream is made when there is work for it: streams cost device memory.
  const int priority = std::clamp(request.priority, place_.device->priority_greatest(),
                                  place_.device->priority_least());
  if (streams_.Add(request.stream, request.nonblocking == 0, priority, record.ticket) == nullptr) {
    return Refuse(wire::Fatal::kBadHandle);
  }
  Reply<wire::StreamCreate>(AskerOf(record), CUDA_SUCCESS);
}

void Session::On(wire::Tag<wire::StreamDestroy>, const wire::StreamDestroy::Request& request,
                 const wire::Record& record) {
  if (request.stream == wire::kLegacyStream) return Refuse(wire::Fatal::kBadHandle);
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  // A command like others, so that the tenant sees the ticket done when the stream is.
  StreamCommand command;
  command.ticket = record.ticket;
  streams_.Enqueue(*stream, std::move(command));
  stream->destroyed = true;
}

}  // namespace gpuloom::executor
