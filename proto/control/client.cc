// SPDX-License-Identifier: Apache-2.0
#include "proto/control/client.h"

#include <sys/socket.h>
#include <sys/time.h>

namespace gpuloom::control {

bool Client::Connect(const std::string& state_dir, std::chrono::milliseconds timeout,
                     std::string* error) {
  connection_.Close();
  refused_ = nobody_there_ = false;
  path_ = state_dir + "/" + kControlSocketName;
  channel::UniqueFd socket = channel::ConnectTo(path_.c_str());
  if (!socket.valid()) {
    nobody_there_ = true;
    *error = "control: cannot connect to " + path_ + ": " + strerror(errno);
    return false;
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timeval limit{};
  limit.tv_sec = seconds.count();
  limit.tv_usec = std::chrono::duration_cast<std::chrono::microseconds>(timeout - seconds).count();
  // The limit holds for each message, not for a whole call. It begins after connect(), which blocks
  // while the scheduler's backlog is full.
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  connection_ = Connection(std::move(socket));
  if (ExchangeVersions(error)) return true;
  // An answer came, and it was a refusal: a lost connection is closed already.
  refused_ = connected();
  connection_.Close();
  return false;
}

bool Client::ExchangeVersions(std::string* error) {
  Answer answer{};
  const auto say = [&](uint16_t minor) {
    connection_.set_peer_minor(0);  // what every minor understands
    return Ask(ControlHello{kControlMajor, minor}, &answer, nullptr, error);
  };
  bool ok = say(kControlMinor);
  // A peer that speaks 3.0 accepts no Hello but its own, and its Answer does not name its version.
  if (!ok && connected() && answer.major == 0) ok = say(0);
  if (!ok) return false;
  connection_.set_peer_minor(answer.minor);
  device_memory_bytes_ = answer.device_memory_bytes;
  driver_version_ = answer.driver_version;
  return true;
}

bool Client::RemoveAllocation(const std::string& name, std::string* error) {
  control::RemoveAllocation message{};
  SetText(message.name, name.c_str());
  return Ask(message, error);
}

bool Client::SuspendAllocation(const std::string& name, bool suspend, std::string* error) {
  control::SuspendAllocation message{};
  SetText(message.name, name.c_str());
  message.suspend = suspend ? 1 : 0;
  return Ask(message, error);
}

bool Client::ListAllocations(std::vector<AllocationState>* allocations, std::string* error) {
  allocations->clear();
  Answer answer;
  // The answer is a list of messages, with the Answer itself as the last one.
  const auto take = [allocations](Incoming& in) {
    AllocationState state;
    if (!in.As(&state)) return false;
    allocations->push_back(state);
    return true;
  };
  return Ask(control::ListAllocations{}, &answer, take, error);
}

bool Client::DescribeGpu(GpuState* gpu, std::vector<DomainState>* domains, std::string* error) {
  *gpu = GpuState{};
  domains->clear();
  Answer answer;
  const auto take = [gpu, domains](Incoming& in) {
    DomainState domain;
    if (in.As(gpu)) return true;
    if (!in.As(&domain)) return false;
    domains->push_back(domain);
    return true;
  };
  return Ask(control::DescribeGpu{}, &answer, take, error);
}

bool Client::BeginTrace(uint32_t limit_ms, std::string* error) {
  return Ask(control::BeginTrace{limit_ms, 0}, error);
}

bool Client::EndTrace(Trace* trace, std::string* error) {
  *trace = {};
  Answer answer;
  const auto take = [trace](Incoming& in) {
    Part part;
    TraceSession session;
    if (in.As(&session)) {
      trace->sessions.push_back(session);
      return true;
    }
    if (!in.As(&part.part) || in.fd_count != Descriptors<TracePart>()) return false;
    part.region = std::move(in.fds[0]);
    trace->parts.push_back(std::move(part));
    return true;
  };
  if (!Ask(control::EndTrace{}, &answer, take, error, Descriptors<TracePart>())) return false;
  trace->lack.assign(answer.message, TextLength(answer.message));
  return true;
}

// Each message is offered to `take` first; what it does not know must be the Answer. Anything else
// ends the connection, because what comes behind it could not be understood either.
bool Client::ReceiveAnswer(uint32_t request, Answer* answer, const TakePart& take,
                           size_t descriptors, std::string* error) {
  Incoming in;
  for (;;) {
    if (!connection_.Receive(&in, descriptors)) return Lost("receive from", error);
    if (in.header.request != request) continue;  // the late answer to a request that was given up
    if (take != nullptr && take(in)) continue;
    if (!in.As(answer)) {
      errno = EPROTO;
      return Lost("understand", error);
    }
    if (answer->ok != 0) return true;
    *error = "scheduler: " + TextOf(answer->message);
    return false;
  }
}

// errno is the reason. The connection is closed: an answer may still come, and be taken for the
// next request's.
bool Client::Lost(const char* what, std::string* error) {
  const int reason = errno;
  *error = std::string("control: cannot ") + what + " the scheduler at " + path_ + ": " +
           (reason == EAGAIN ? "no answer in time" : strerror(reason));
  connection_.Close();
  return false;
}

}  // namespace gpuloom::control
