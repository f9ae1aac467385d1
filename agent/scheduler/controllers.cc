// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/controllers.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <utility>

#include "agent/scheduler/allocations.h"
#include "agent/scheduler/device.h"
#include "agent/scheduler/handlers.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/operator_traces.h"
#include "agent/scheduler/reports.h"
#include "agent/scheduler/shares.h"
#include "proto/channel/socket.h"
#include "proto/control/dispatch.h"

namespace gpuloom::scheduler {
namespace {

// SetText cuts what does not fit into the message.
control::Answer MakeAnswer(bool ok, const std::string& message) {
  control::Answer answer{};
  answer.ok = ok ? 1 : 0;
  control::SetText(answer.message, message.c_str());
  return answer;
}

}  // namespace

std::string Controllers::Path() const {
  return options_.state_dir + "/" + control::kControlSocketName;
}

bool Controllers::Listen(std::string* error) {
  const std::string path = Path();
  listener_ = channel::ListenAt(path.c_str());
  // In addition to the mode, Accept checks the user id.
  if (!listener_.valid() || chmod(path.c_str(), 0600) != 0) {
    *error = "cannot make the control socket " + path + ": " + strerror(errno);
    return false;
  }
  return true;
}

void Controllers::Serve() {
  watch_ = loop_->WatchFd(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
}

void Controllers::Close() {
  watch_.End();
  unlink(Path().c_str());
  listener_.Reset();
}

void Controllers::Accept() {
  channel::UniqueFd socket(
      accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    // No descriptor or memory is left. The listener stays readable, so without a pause the loop
    // would spin.
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      LogWarning(std::string("control: cannot accept a connection: ") + strerror(errno) +
                 "; tried again in a second: raise the limit of open files, or free memory here");
      watch_.Change(0);
      pause_ = loop_->After(std::chrono::seconds(1), [this] { watch_.Change(EPOLLIN); });
    }
    return;
  }
  // The socket's mode keeps others out as well, but only once it has been set.
  ucred peer{};
  socklen_t size = sizeof(peer);
  // Zeros would be root.
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    LogWarning(
        std::string("control: refused a process of which the kernel does not say whose it is: ") +
        strerror(errno));
    return;
  }
  if (peer.uid != 0 && peer.uid != geteuid()) {
    LogWarning("control: refused " + ProcessText(peer.pid) + " of user " +
               std::to_string(peer.uid));
    return;
  }
  if (controllers_.size() >= kMaxControlConnections) {
    LogWarning("control: too many connections, refused " + ProcessText(peer.pid));
    return;
  }
  // From now on the end of the last connection may mean that nobody needs this scheduler.
  was_used_ = true;
  const uint64_t id = registry_.NextId();
  Controller& controller = controllers_[id];
  controller.id = id;
  controller.peer = std::make_unique<Peer>(
      loop_, std::move(socket), [this, id](const control::Incoming& in) { OnMessage(id, in); },
      [this, id](const std::string&) { OnGone(id); });
  controller.peer->SetPeerMinor(
      0);  // every minor version understands this; used until the peer names its own
}

// The trace goes first, because it answers to its controller. Then follow the allocations that were
// to live as long as the connection.
void Controllers::OnGone(uint64_t id) {
  operator_traces_->DropOf(controllers_.at(id));
  controllers_.erase(id);
  allocations_->RemoveOf(id);
  port_->StopIfUnused();
}

// One answer for each request, also for one that is not known or malformed: an agent of another
// release must not wait in vain. Lists come before the answer, and a trace's answer when its
// executors have done their part.
void Controllers::OnMessage(uint64_t id, const control::Incoming& in) {
  Controller& controller = controllers_.at(id);
  Peer* peer = controller.peer.get();
  const uint32_t request = in.header.request;
  const bool is_hello = in.header.type == control::kType<control::ControlHello>;
  if (!controller.greeted && !is_hello) {
    if (request != 0) peer->Send(request, MakeAnswer(false, "say ControlHello first"));
    return;
  }
  std::string error;
  const bool ok = Dispatch(&controller, in, &error);
  if (!ok) LogWarning("control: " + error);
  const bool begins_trace = in.header.type == control::kType<control::BeginTrace>;
  const bool ends_trace = in.header.type == control::kType<control::EndTrace>;
  if (ok && (begins_trace || ends_trace)) return operator_traces_->Await(begins_trace, request);
  if (request == 0) return;
  if (ok && in.header.type == control::kType<control::ListAllocations>) {
    reports_->SendStates(peer, request);
  }
  if (ok && in.header.type == control::kType<control::DescribeGpu>) {
    reports_->SendGpu(peer, request);
  }
  control::Answer answer = MakeAnswer(ok, error);
  if (is_hello) {
    answer.device_memory_bytes = device_->facts().total_memory_bytes;
    answer.major = control::kControlMajor;
    answer.minor = control::kControlMinor;
    answer.driver_version = static_cast<uint32_t>(device_->facts().driver_version);
  }
  peer->Send(request, answer);
}

bool Controllers::Dispatch(Controller* controller, const control::Incoming& in,
                           std::string* error) {
  bool ok = false;
  const control::Judgement judged =
      control::Dispatch<control::Route::kAgentAsks>(in, [&]<control::Message M>(const M& message) {
        ok = PartWith<M>(*this, *allocations_, *operator_traces_, *shares_)
                 .Apply(controller, message, error);
      });
  switch (judged) {
    case control::Judgement::kHandled:
      break;
    case control::Judgement::kUnknown:
      *error = "message " + std::to_string(in.header.type) + " is not known to control version " +
               control::VersionText(control::kControlMajor, control::kControlMinor) +
               ", which this scheduler speaks: it is older than what asks";
      break;
    case control::Judgement::kMalformed:
      *error = std::string(control::FindMessage(in.header.type)->name) +
               " is not for a scheduler, or too short: " + std::to_string(in.body_bytes) + " bytes";
      break;
  }
  return ok;
}

bool Controllers::Apply(Controller* controller, const control::ControlHello& message,
                        std::string* error) {
  // Another major is refused with a message that says which side to update, and the connection
  // stays unusable.
  controller->greeted = control::CanTalk(message.major);
  if (controller->greeted) {
    controller->peer->SetPeerMinor(message.minor);
    return true;
  }
  *error = "the agent or command that asks speaks control version " +
           control::VersionText(message.major, message.minor) + ", this scheduler " +
           control::VersionText(control::kControlMajor, control::kControlMinor) + ": ";
  *error +=
      message.major < control::kControlMajor
          ? "install the release that this scheduler comes from"
          : "start a scheduler of the newer release (in a cluster: drain the node's GPU pods and "
            "delete its gpuloom-schedulers pod; elsewhere: end the commands that use this one)";
  return false;
}

bool Controllers::Apply(Controller*, const control::ListAllocations&, std::string*) { return true; }
bool Controllers::Apply(Controller*, const control::DescribeGpu&, std::string*) { return true; }

}  // namespace gpuloom::scheduler
