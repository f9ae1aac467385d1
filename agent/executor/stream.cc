#include "agent/executor/session.h"

namespace gpuloom::executor {

void Session::On(wire::Tag<wire::StreamCreate>, const wire::StreamCreate::Request& request,
                 const wire::Record& record) {
  if (request.stream == wire::kLegacyStream) return Refuse(wire::Fatal::kBadHandle);
  // All streams are non-blocking to CUDA: the barrier of the legacy stream must not cross tenants.
  CUstream cuda = nullptr;
  const CUresult result = place_.device->TakeStream(request.priority, &cuda);
  if (result != CUDA_SUCCESS) return Reply<wire::StreamCreate>(AskerOf(record), result);
  if (streams_.Add(request.stream, request.nonblocking == 0, request.priority, cuda,
                   record.ticket) == nullptr) {
    place_.device->GiveStream(request.priority, cuda);
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
