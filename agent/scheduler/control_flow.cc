// Agent ↔ scheduler: who may ask, and what each request changes.
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/scheduler/log.h"
#include "agent/scheduler/scheduler.h"
#include "proto/wire/query.h"

namespace gpuloom::scheduler {
namespace {

template <size_t N>
std::string Text(const char (&field)[N]) {
  return std::string(field, control::TextLength(field));
}

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
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      LogWarning(std::string("cannot accept a control connection: ") + strerror(errno));
      control_watch_.Change(0);
      control_pause_ =
          loop_->After(std::chrono::seconds(1), [this] { control_watch_.Change(EPOLLIN); });
    }
    return;
  }
  ucred peer{};
  socklen_t size = sizeof(peer);
  getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  if (peer.uid != 0 && peer.uid != geteuid()) {
    LogWarning("control: refused " + ProcessText(peer.pid) + " of user " +
               std::to_string(peer.uid));
    return;
  }
  if (controllers_.size() >= kMaxControlConnections) {
    LogWarning("control: too many connections, refused " + ProcessText(peer.pid));
    return;
  }
  was_used_ = true;
  const uint64_t id = ++last_id_;
  controllers_[id].peer = std::make_unique<Peer>(
      loop_, std::move(socket), [this, id](const control::Incoming& in) { OnControl(id, in); },
      [this, id](const std::string&) { EndController(id); });
}

void Scheduler::EndController(uint64_t id) {
  controllers_.erase(id);
  std::vector<std::string> owned;
  for (const auto& [name, entry] : allocations_) {
    if (entry.allocation->owner == id) owned.push_back(name);
  }
  for (const std::string& name : owned) Remove(name);
  LookUnused();
}

void Scheduler::OnControl(uint64_t id, const control::Incoming& in) {
  Controller& controller = controllers_.at(id);
  Peer* peer = controller.peer.get();
  const uint32_t request = in.header.request;
  std::string error;
  control::ControlHello hello;
  if (in.As(&hello)) {
    controller.greeted = hello.version == control::kControlVersion;
    if (!controller.greeted) {
      error = "control version " + std::to_string(hello.version) + " is not " +
              std::to_string(control::kControlVersion) +
              ": agent and scheduler come from different releases; restart the older one";
    }
    control::Answer answer = MakeAnswer(controller.greeted, error);
    answer.device_memory_bytes = device_->facts().total_memory_bytes;
    peer->Send(request, answer);
    return;
  }
  if (!controller.greeted) {
    peer->Send(request, MakeAnswer(false, "say ControlHello first"));
    return;
  }
  control::AddAllocation add;
  control::BindAllocation bind;
  control::PrepareExecutor prepare;
  control::RemoveAllocation remove;
  control::ListAllocations list;
  bool ok = true;
  if (in.As(&add)) {
    ok = Apply(id, add, &error);
  } else if (in.As(&bind)) {
    ok = Apply(id, bind, &error);
  } else if (in.As(&prepare)) {
    ok = Apply(id, prepare, &error);
  } else if (in.As(&remove)) {
    Remove(Text(remove.name));
  } else if (in.As(&list)) {
    SendStates(peer, request);
  } else {
    ok = false;
    error = "message of unknown type or size";
  }
  if (!ok) LogWarning("control: " + error);
  peer->Send(request, MakeAnswer(ok, error));
}

bool Scheduler::Apply(uint64_t controller, const control::AddAllocation& message,
                      std::string* error) {
  const std::string name = Text(message.name);
  const std::string directory = Text(message.directory);
  if (name.empty()) {
    *error = "an allocation needs a name";
    return false;
  }
  const auto existing = allocations_.find(name);
  if (existing != allocations_.end()) {
    if (existing->second.allocation->directory != directory) {
      *error = "allocation " + name + " has its socket in " +
               existing->second.allocation->directory + ", not in " + directory;
      return false;
    }
    existing->second.allocation->slots = message.slots;
    existing->second.allocation->owner = message.ends_with_connection != 0 ? controller : 0;
    return existing->second.door->present() || existing->second.door->Open(directory, error);
  }
  if (allocations_.size() >= kMaxAllocations) {
    *error = "too many allocations: " + std::to_string(kMaxAllocations);
    return false;
  }
  auto allocation = std::make_shared<Allocation>();
  allocation->name = name;
  allocation->directory = directory;
  allocation->slots = message.slots;
  allocation->owner = message.ends_with_connection != 0 ? controller : 0;
  auto door = std::make_unique<TenantDoor>(loop_, [this, allocation](Visitor visitor) {
    if (visitor.hello.magic == wire::kQueryMagic) {
      AnswerWhenReturned(allocation, std::move(visitor));
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
  const std::string name = Text(message.name);
  const auto it = allocations_.find(name);
  if (it == allocations_.end()) {
    *error = "allocation " + name + " is not known: add it first";
    return false;
  }
  Allocation* allocation = it->second.allocation.get();
  const bool was_bound = allocation->bound;
  if (!Bind(message, allocation, error)) return false;
  const std::string line = allocation->Label() + ": allocation " + name + ", domain " +
                           allocation->trust_domain + ", quota " +
                           std::to_string(allocation->usage.quota_bytes() >> 20) + " MiB";
  was_bound ? LogDebug(line) : LogInfo(line);
  return true;
}

bool Scheduler::Apply(uint64_t, const control::PrepareExecutor& message, std::string* error) {
  const std::string name = Text(message.name);
  const auto it = allocations_.find(name);
  if (it == allocations_.end() || !it->second.allocation->bound) {
    *error = "allocation " + name + " is not bound: no domain to prepare an executor for";
    return false;
  }
  Executor* executor = ExecutorFor(it->second.allocation->trust_domain, error);
  // One that idles shall not end just before the program comes.
  if (executor != nullptr) LookIdle(executor);
  return executor != nullptr;
}

void Scheduler::Remove(const std::string& name) {
  const auto it = allocations_.find(name);
  if (it == allocations_.end()) return;
  const AllocationPtr allocation = it->second.allocation;
  allocation->removed = true;
  allocations_.erase(it);  // and with it the door
  LogInfo(allocation->Label() + ": allocation " + name + " removed");
  std::vector<Session*> theirs;
  for (auto& [id, session] : sessions_) {
    if (session->allocation == allocation) theirs.push_back(session.get());
  }
  for (Session* session : theirs) EndSession(session, "its allocation was removed");
  if (const auto domain = domains_.find(allocation->trust_domain); domain != domains_.end()) {
    LookIdle(domain->second);
  }
  LookUnused();
}

uint64_t Scheduler::KernelsLaunched(const Allocation& allocation) const {
  uint64_t sum = allocation.kernels_of_ended_sessions;
  for (const auto& [id, session] : sessions_) {
    if (session->allocation.get() == &allocation) sum += session->kernels_launched;
  }
  return sum;
}

void Scheduler::SendStates(Peer* peer, uint32_t request) {
  for (const auto& [name, entry] : allocations_) {
    const Allocation& allocation = *entry.allocation;
    control::AllocationState state{};
    control::SetText(state.name, name.c_str());
    control::SetText(state.pod_namespace, allocation.identity.pod_namespace.c_str());
    control::SetText(state.pod, allocation.identity.pod.c_str());
    control::SetText(state.pod_uid, allocation.identity.pod_uid.c_str());
    control::SetText(state.container, allocation.identity.container.c_str());
    control::SetText(state.trust_domain, allocation.trust_domain.c_str());
    state.bound = allocation.bound ? 1 : 0;
    state.slots = allocation.slots;
    state.sessions = allocation.session_count;
    state.memory_quota_bytes = allocation.usage.quota_bytes();
    state.memory_used_bytes = allocation.usage.used_bytes();
    state.memory_peak_bytes = allocation.usage.peak_bytes();
    state.memory_refused_count = allocation.usage.refused_count();
    state.kernels_launched = KernelsLaunched(allocation);
    state.unsupported_count = static_cast<uint32_t>(allocation.unsupported.size());
    std::string unsupported;
    for (const std::string& one : allocation.unsupported) {
      if (unsupported.size() + one.size() + 1 >= sizeof(state.unsupported)) break;
      unsupported += one + "\n";
    }
    control::SetText(state.unsupported, unsupported.c_str());
    peer->Send(request, state);
  }
}

}  // namespace gpuloom::scheduler
