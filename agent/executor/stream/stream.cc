// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "agent/executor/device/device.h"
#include "agent/executor/stream/submission.h"

namespace gpuloom::executor {

void Submission::On(wire::Tag<wire::StreamCreate>, const wire::StreamCreate::Request& request,
                    const wire::Record& record) {
  if (request.stream == wire::kLegacyStream) return Refuse(wire::Fatal::kBadHandle);
  // The CUDA stream is made when there is work for it: streams cost device memory.
  const int priority = std::clamp(request.priority, services_.device->priority_greatest(),
                                  services_.device->priority_least());
  // Charged here and not when the CUDA stream is made, so that the refusal is an answer to the call
  // that creates the stream.
  ChargeStream(
      request.stream, [this, request, priority, caller = CallerOf(record), ticket = record.ticket](
                          CUresult charged, StreamChargeRef charge, bool is_handler) {
        if (charged != CUDA_SUCCESS) return Reply<wire::StreamCreate>(caller, charged);
        Stream* stream = streams_.Add(request.stream, request.nonblocking == 0, priority, ticket);
        if (stream == nullptr) {
          return is_handler ? Refuse(wire::Fatal::kBadHandle) : EndFor(wire::Fatal::kBadHandle);
        }
        stream->charge = std::move(charge);
        Reply<wire::StreamCreate>(caller, CUDA_SUCCESS);
      });
}

void Submission::On(wire::Tag<wire::StreamDestroy>, const wire::StreamDestroy::Request& request,
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

// A command that does nothing: its ticket is done when all that was in the stream before it is.
void Submission::On(wire::Tag<wire::StreamMark>, const wire::StreamMark::Request& request,
                    const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  StreamCommand command;
  command.ticket = record.ticket;
  streams_.Enqueue(*stream, std::move(command));
}

}  // namespace gpuloom::executor
