// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/host_function.h"

#include "agent/executor/stream/stream_set.h"

namespace gpuloom::executor {

void HostFunctions::On(wire::Tag<wire::HostFunction>, const wire::HostFunction::Request& request,
                       const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  StreamCommand command;
  command.ticket = record.ticket;
  command.gate = std::make_shared<Gate>();
  // Called again in each round while the board is full; once the tenant has been notified, only its
  // answer opens the gate.
  command.gate->try_open = [this, id = request.id, asked = false](Gate* gate) mutable {
    if (asked) return;
    asked = Call(id, gate->Opener());
    if (asked) port_->Publish();
  };
  streams_.Enqueue(*stream, std::move(command));
}

}  // namespace gpuloom::executor
