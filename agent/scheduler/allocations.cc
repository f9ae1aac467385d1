// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/allocations.h"

#include <memory>
#include <utility>
#include <vector>

#include "agent/scheduler/controller.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/memory_grants.h"
#include "agent/scheduler/own_traces.h"
#include "agent/scheduler/sessions.h"
#include "agent/scheduler/shares.h"
#include "agent/scheduler/trust_domains.h"
#include "agent/scheduler/turns.h"
#include "proto/control/connection.h"

namespace gpuloom::scheduler {

bool Allocations::Apply(Controller* controller, const control::AddAllocation& message,
                        std::string* error) {
  const std::string name = control::TextOf(message.name);
  const std::string directory = control::TextOf(message.directory);
  if (name.empty()) {
    *error = "an allocation needs a name";
    return false;
  }
  const auto existing = registry_.allocations.find(name);
  if (existing != registry_.allocations.end()) {
    return AddAgain(existing->second, *controller, message, error);
  }
  if (registry_.allocations.size() >= Registry::kMaxAllocations) {
    *error = "too many allocations: " + std::to_string(Registry::kMaxAllocations);
    return false;
  }
  auto allocation = std::make_shared<Allocation>();
  allocation->id = registry_.NextId();
  allocation->name = name;
  allocation->directory = directory;
  allocation->slots = message.slots;
  allocation->owner = message.ends_with_connection != 0 ? controller->id : 0;
  // The door holds the allocation: a connection that it has accepted belongs to that one, whatever
  // is added under its name later.
  auto door = std::make_unique<TenantDoor>(loop_, [this, allocation](TenantConnection connection) {
    on_connection_(allocation, std::move(connection));
  });
  if (!door->Open(directory, error)) return false;
  registry_.allocations.emplace(
      name, Registry::DoorAndAllocation{std::move(allocation), std::move(door)});
  LogInfo("allocation " + name + " of " + std::to_string(message.slots) + " slots added");
  return true;
}

bool Allocations::Apply(Controller*, const control::BindAllocation& message, std::string* error) {
  const std::string name = control::TextOf(message.name);
  const auto it = registry_.allocations.find(name);
  if (it == registry_.allocations.end()) {
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
  if (allocation->memory_wait != wait_before) called_.memory_grants->UpdateWait(*allocation);
  if (!was_bound) {
    allocation->namespace_id =
        called_.shares->NumberOfNamespace(allocation->identity.pod_namespace);
  } else if (allocation->shares != shares_before || allocation->partition != partition_before ||
             allocation->kernels != kernels_before ||
             allocation->rescue_after_ms != rescue_before) {
    called_.shares->Send(*allocation);
  }
  called_.turns->Set(*allocation);
  // The policy may have taken the permission away while a trace goes on.
  called_.own_traces->EndIfNotAllowed(*allocation);
  // It may have been the last one of its former domain.
  if (!was_bound || allocation->trust_domain != domain_before) called_.trust_domains->Forget();
  const std::string line = allocation->Label() + ": allocation " + name + ", domain " +
                           allocation->trust_domain + ", quota " +
                           std::to_string(allocation->usage.quota_bytes() >> 20) + " MiB";
  was_bound ? LogDebug(line) : LogInfo(line);
  return true;
}

bool Allocations::Apply(Controller*, const control::PrepareExecutor& message, std::string* error) {
  const std::string name = control::TextOf(message.name);
  const auto it = registry_.allocations.find(name);
  if (it == registry_.allocations.end() || !it->second.allocation->bound) {
    *error = "allocation " + name + " is not bound: no domain to prepare an executor for";
    return false;
  }
  Executor* executor = port_->ExecutorFor(it->second.allocation->trust_domain, error);
  // An idle executor must not end just before the program connects.
  if (executor != nullptr) port_->ArmIdleTimer(executor);
  return executor != nullptr;
}

bool Allocations::Apply(Controller*, const control::RemoveAllocation& message, std::string*) {
  Remove(control::TextOf(message.name));
  return true;
}

// The order matters: once its door is closed no session can be added; `removed` stops its traces;
// then its sessions end. They hold the allocation until all they had is free.
void Allocations::Remove(const std::string& name) {
  const auto it = registry_.allocations.find(name);
  if (it == registry_.allocations.end()) return;
  const AllocationPtr allocation = it->second.allocation;
  allocation->removed = true;
  registry_.allocations.erase(it);  // this also closes its door
  called_.turns->Remove(*allocation);
  called_.own_traces->EndIfNotAllowed(*allocation);
  LogInfo(allocation->Label() + ": allocation " + name + " removed");
  // A copy: EndSession may take sessions out of the table.
  std::vector<Session*> theirs;
  for (auto& [id, session] : registry_.sessions) {
    if (session->allocation == allocation) theirs.push_back(session.get());
  }
  for (Session* session : theirs) {
    called_.sessions->EndSession(session, "its allocation was removed");
  }
  if (const auto domain = registry_.serving.find(allocation->trust_domain);
      domain != registry_.serving.end()) {
    port_->ArmIdleTimer(domain->second);
  }
  called_.trust_domains->Forget();
  port_->StopIfUnused();
}

// The socket may have been removed with its folder and is made anew; slots and owner may have changed.
bool Allocations::AddAgain(const Registry::DoorAndAllocation& known, const Controller& controller,
                           const control::AddAllocation& message, std::string* error) {
  const std::string directory = control::TextOf(message.directory);
  if (known.allocation->directory != directory) {
    *error = "allocation " + known.allocation->name + " has its socket in " +
             known.allocation->directory + ", not in " + directory;
    return false;
  }
  if (std::exchange(known.allocation->slots, message.slots) != message.slots) {
    called_.shares->Send(*known.allocation);
    if (known.allocation->bound) called_.turns->Set(*known.allocation);
  }
  known.allocation->owner = message.ends_with_connection != 0 ? controller.id : 0;
  return known.door->present() || known.door->Open(directory, error);
}

void Allocations::RemoveOf(uint64_t controller_id) {
  std::vector<std::string> owned;
  for (const auto& [name, entry] : registry_.allocations) {
    if (entry.allocation->owner == controller_id) owned.push_back(name);
  }
  for (const std::string& name : owned) Remove(name);
}

}  // namespace gpuloom::scheduler
