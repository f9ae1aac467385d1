#include "agent/executor/session.h"

namespace gpuloom::executor {

void Session::On(wire::Tag<wire::Launch>, const wire::Launch::Request& request,
                 const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  const Kernel* kernel = FindKernel(request.kernel);
  if (kernel == nullptr) return;
  if (record.payload.size() != kernel->param_bytes) return Refuse(wire::Fatal::kRecordSize);
  if (request.flags != 0) return Refuse(wire::Fatal::kBadArgument);
  StreamCommand command;
  command.ticket = record.ticket;
  command.work = LaunchWork{request, kernel->function, kernel->library};
  command.payload = record.payload;
  streams_.Enqueue(*stream, std::move(command));
}

}  // namespace gpuloom::executor
