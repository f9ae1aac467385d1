// SPDX-License-Identifier: Apache-2.0
// Agent ↔ scheduler: who may ask, and what each request changes.
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "agent/scheduler/log.h"
#include "agent/scheduler/scheduler.h"
#include "proto/control/dispatch.h"
#include "proto/wire/query.h"

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

void Scheduler::AcceptController() {
  channel::UniqueFd socket(
      accept4(control_listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    // No descriptor or memory is left. The listener stays readable, so without a pause the loop
    // would spin.
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      LogWarning(std::string("cannot accept a control connection: ") + strerror(errno));
      control_watch_.Change(0);
      control_pause_ =
          loop_->After(std::chrono::seconds(1), [this] { control_watch_.Change(EPOLLIN); });
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
  const uint64_t id = ++last_id_;
  controllers_[id].peer = std::make_unique<Peer>(
      loop_, std::move(socket), [this, id](const control::Incoming& in) { OnControl(id, in); },
      [this, id](const std::string&) { EndController(id); });
  controllers_[id].peer->SetPeerMinor(
      0);  // every minor version understands this; used until the peer names its own
}

// The trace goes first, because it looks up its controller to answer it. Then follow the
// allocations that were to live as long as the connection (`gpuloom run`).
void Scheduler::EndController(uint64_t id) {
  DropTraceOf(id);
  controllers_.erase(id);
  std::vector<std::string> owned;
  for (const auto& [name, entry] : allocations_) {
    if (entry.allocation->owner == id) owned.push_back(name);
  }
  for (const std::string& name : owned) Remove(name);
  LookUnused();
}

// One answer for each request, also for one that is not known or malformed: an agent of another
// release must not wait in vain. Lists come before the answer, and a trace's answer when its
// executors have done their part.
void Scheduler::OnControl(uint64_t id, const control::Incoming& in) {
  const Controller& controller = controllers_.at(id);
  Peer* peer = controller.peer.get();
  const uint32_t request = in.header.request;
  const bool is_hello = in.header.type == control::kType<control::ControlHello>;
  if (!controller.greeted && !is_hello) {
    if (request != 0) peer->Send(request, MakeAnswer(false, "say ControlHello first"));
    return;
  }
  bool ok = false;
  std::string error;
  switch (control::Dispatch<control::Route::kAgentAsks>(
      in, [&](const auto& message) { ok = Apply(id, message, &error); })) {
    case control::Judgement::kHandled:
      break;
    case control::Judgement::kUnknown:
      error = "message " + std::to_string(in.header.type) + " is not known to control version " +
              control::VersionText(control::kControlMajor, control::kControlMinor) +
              ", which this scheduler speaks: it is older than what asks";
      break;
    case control::Judgement::kMalformed:
      error = std::string(control::FindMessage(in.header.type)->name) +
              " is not for a scheduler, or too short: " + std::to_string(in.body_bytes) + " bytes";
      break;
  }
  if (!ok) LogWarning("control: " + error);
  const bool begins_trace = in.header.type == control::kType<control::BeginTrace>;
  const bool ends_trace = in.header.type == control::kType<control::EndTrace>;
  if (ok && (begins_trace || ends_trace)) return AwaitTrace(begins_trace, request);
  if (request == 0) return;
  if (ok && in.header.type == control::kType<control::ListAllocations>) SendStates(peer, request);
  if (ok && in.header.type == control::kType<control::DescribeGpu>) SendGpu(peer, request);
  control::Answer answer = MakeAnswer(ok, error);
  if (is_hello) {
    answer.device_memory_bytes = device_->facts().total_memory_bytes;
    answer.major = control::kControlMajor;
    answer.minor = control::kControlMinor;
    answer.driver_version = static_cast<uint32_t>(device_->facts().driver_version);
  }
  peer->Send(request, answer);
}

bool Scheduler::Apply(uint64_t id, const control::ControlHello& message, std::string* error) {
  Controller& controller = controllers_.at(id);
  // Another major is refused with a message that says which side to update, and the connection
  // stays unusable.
  controller.greeted = control::CanTalk(message.major);
  if (controller.greeted) {
    controller.peer->SetPeerMinor(message.minor);
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

bool Scheduler::Apply(uint64_t controller, const control::AddAllocation& message,
                      std::string* error) {
  const std::string name = control::TextOf(message.name);
  const std::string directory = control::TextOf(message.directory);
  if (name.empty()) {
    *error = "an allocation needs a name";
    return false;
  }
  const auto existing = allocations_.find(name);
  // An agent that has restarted adds again the allocations that it knows. The socket may have been
  // removed with its folder and is made anew; slots and owner may have changed.
  if (existing != allocations_.end()) {
    if (existing->second.allocation->directory != directory) {
      *error = "allocation " + name + " has its socket in " +
               existing->second.allocation->directory + ", not in " + directory;
      return false;
    }
    if (std::exchange(existing->second.allocation->slots, message.slots) != message.slots) {
      TellShares(*existing->second.allocation);
      if (existing->second.allocation->bound) turns_.Set(*existing->second.allocation);
    }
    existing->second.allocation->owner = message.ends_with_connection != 0 ? controller : 0;
    return existing->second.door->present() || existing->second.door->Open(directory, error);
  }
  if (allocations_.size() >= kMaxAllocations) {
    *error = "too many allocations: " + std::to_string(kMaxAllocations);
    return false;
  }
  auto allocation = std::make_shared<Allocation>();
  allocation->id = ++last_id_;
  allocation->name = name;
  allocation->directory = directory;
  allocation->slots = message.slots;
  allocation->owner = message.ends_with_connection != 0 ? controller : 0;
  // The door holds the allocation: a visitor that it has accepted belongs to that one, whatever is
  // added under its name later.
  auto door = std::make_unique<TenantDoor>(loop_, [this, allocation](Visitor visitor) {
    if (visitor.hello.magic == wire::kQueryMagic) {
      AnswerWhenReturned(allocation, std::move(visitor));
    } else if (visitor.hello.magic == wire::kTraceMagic) {
      TraceOwn(allocation, std::move(visitor));
    } else {
      Admit(allocation, std::move(visitor));
    }
  });
  if (!door->Open(directory, error)) return false;
  allocations_.emplace(name, DoorAndAllocation{std::move(allocation), std::move(door)});
  LogInfo("allocation " + name + " of " + std::to_string(message.slots) + " slots added");
  return true;
}

bool Scheduler::Apply(uint64_t, const control::BindAllocation& message, std::string* error) {
  const std::string name = control::TextOf(message.name);
  const auto it = allocations_.find(name);
  if (it == allocations_.end()) {
    *error = "allocation " + name + " is not known: add it first";
    return false;
  }
  Allocation* allocation = it->second.allocation.get();
  const bool was_bound = allocation->bound;
  // Kept to notify others only of what has changed: this message comes for every allocation after
  // every change of the policy.
  const control::ShareTerms shares_before = allocation->shares;
  const control::PartitionTerms partition_before = allocation->partition;
  const control::KernelTerms kernels_before = allocation->kernels;
  const uint32_t rescue_before = allocation->rescue_after_ms;
  const std::chrono::milliseconds wait_before = allocation->memory_wait;
  const std::string domain_before = allocation->trust_domain;
  if (!Bind(message, allocation, error)) return false;
  // The new limit counts from when each waiting request arrived.
  if (allocation->memory_wait != wait_before) {
    waiting_.SetWait(allocation, allocation->memory_wait);
    LookAtWaiting();
  }
  if (!was_bound) {
    allocation->namespace_id = NumberOfNamespace(allocation->identity.pod_namespace);
  } else if (allocation->shares != shares_before || allocation->partition != partition_before ||
             allocation->kernels != kernels_before ||
             allocation->rescue_after_ms != rescue_before) {
    TellShares(*allocation);
  }
  turns_.Set(*allocation);
  // The policy may have taken the permission away while a trace goes on.
  EndOwnTracesNotAllowed(*allocation);
  // It may have been the last one of its former domain.
  if (!was_bound || allocation->trust_domain != domain_before) ForgetDomains();
  const std::string line = allocation->Label() + ": allocation " + name + ", domain " +
                           allocation->trust_domain + ", quota " +
                           std::to_string(allocation->usage.quota_bytes() >> 20) + " MiB";
  was_bound ? LogDebug(line) : LogInfo(line);
  return true;
}

bool Scheduler::Apply(uint64_t, const control::PrepareExecutor& message, std::string* error) {
  const std::string name = control::TextOf(message.name);
  const auto it = allocations_.find(name);
  if (it == allocations_.end() || !it->second.allocation->bound) {
    *error = "allocation " + name + " is not bound: no domain to prepare an executor for";
    return false;
  }
  Executor* executor = ExecutorFor(it->second.allocation->trust_domain, error);
  // An idle executor must not end just before the program connects.
  if (executor != nullptr) LookIdle(executor);
  return executor != nullptr;
}

bool Scheduler::Apply(uint64_t, const control::RemoveAllocation& message, std::string*) {
  Remove(control::TextOf(message.name));
  return true;
}

bool Scheduler::Apply(uint64_t, const control::ListAllocations&, std::string*) { return true; }
bool Scheduler::Apply(uint64_t, const control::DescribeGpu&, std::string*) { return true; }

// The order matters: without its door nobody comes any more; `removed` stops its traces; then its
// sessions end. They hold the allocation until all they had is free.
void Scheduler::Remove(const std::string& name) {
  const auto it = allocations_.find(name);
  if (it == allocations_.end()) return;
  const AllocationPtr allocation = it->second.allocation;
  allocation->removed = true;
  allocations_.erase(it);  // this also closes its door
  turns_.Remove(*allocation);
  EndOwnTracesNotAllowed(*allocation);
  LogInfo(allocation->Label() + ": allocation " + name + " removed");
  // A copy: EndSession may take sessions out of the table.
  std::vector<Session*> theirs;
  for (auto& [id, session] : sessions_) {
    if (session->allocation == allocation) theirs.push_back(session.get());
  }
  for (Session* session : theirs) EndSession(session, "its allocation was removed");
  if (const auto domain = domains_.find(allocation->trust_domain); domain != domains_.end()) {
    LookIdle(domain->second);
  }
  ForgetDomains();
  LookUnused();
}

}  // namespace gpuloom::scheduler
