// SPDX-License-Identifier: Apache-2.0
#include "proto/control/client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include <algorithm>

namespace gpuloom::control {
namespace {

std::string TextOfErrno(int reason) {
  return reason == EAGAIN ? "no answer in time" : strerror(reason);
}

}  // namespace

bool Client::Connect(const std::string& state_dir, std::chrono::milliseconds timeout,
                     std::string* error) {
  connection_.Close();
  refused_ = not_listening_ = false;
  path_ = state_dir + "/" + kControlSocketName;
  timeout_ = timeout;
  deadline_ = Clock::now() + timeout;
  // Not 0, which would be no limit.
  const auto limit_ms = static_cast<unsigned>(std::max<int64_t>(timeout.count(), 1));
  channel::UniqueFd socket = channel::ConnectTo(path_.c_str(), limit_ms);
  if (!socket.valid()) {
    const int reason = errno;
    // Whoever listens and accepts nobody is there, and hangs.
    not_listening_ = reason != EAGAIN;
    *error = "control: cannot connect to " + path_ + ": " + TextOfErrno(reason);
    return false;
  }
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
    return Exchange(ControlHello{kControlMajor, minor}, &answer, nullptr, error);
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

// False with errno, EAGAIN at the call's deadline: for all messages of an answer together, so that one that comes in
// pieces cannot take for ever.
bool Client::WaitForMessage(bool is_first) const {
  pollfd one{connection_.fd(), POLLIN, 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
    // The first one is taken if it is there, however late we look: it may be us who were held up.
    if (left.count() <= 0 && !is_first) {
      errno = EAGAIN;
      return false;
    }
    const int ready = poll(&one, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready > 0) return true;
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) errno = EAGAIN;
    return false;
  }
}

// Each message is offered to `take` first; what it does not know must be the Answer. Anything else
// ends the connection, because what comes behind it could not be understood either.
bool Client::ReceiveAnswer(uint32_t request, Answer* answer, const TakePart& take,
                           size_t descriptors, std::string* error) {
  Incoming in;
  for (bool is_first = true;; is_first = false) {
    if (!WaitForMessage(is_first) || !connection_.Receive(&in, descriptors)) {
      return Lost("receive from", error);
    }
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
           TextOfErrno(reason);
  connection_.Close();
  return false;
}

}  // namespace gpuloom::control
