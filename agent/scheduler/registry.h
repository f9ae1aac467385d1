// SPDX-License-Identifier: Apache-2.0
// What exists on one GPU at present: allocations with their doors, sessions and executors, which it owns. Plain state
// that the scheduler's parts change (docs/design/scheduler-parts.md); the scheduler's thread only.
//
// Pointers to what is in it are valid until that is erased. So what runs later (a timer, an answer) keeps the id and
// looks it up again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "agent/scheduler/allocation.h"
#include "agent/scheduler/executor.h"
#include "agent/scheduler/session.h"
#include "agent/scheduler/tenant_door.h"

namespace gpuloom::scheduler {

struct Registry {
  static constexpr size_t kMaxAllocations = 1024;

  struct DoorAndAllocation {
    AllocationPtr allocation;
    std::unique_ptr<TenantDoor> door;
  };

  // Never reused, and one sequence for everything: an id of one kind is never taken for another's.
  uint64_t NextId() { return ++last_id; }

  // The id comes from an executor: a session of another is as unknown as none.
  Session* FindSession(uint64_t session_id_untrusted, const Executor& executor) const;
  // The same for what only a session gets that has not ended.
  Session* FindServed(uint64_t session_id_untrusted, const Executor& executor) const;
  Executor* FindExecutor(uint64_t executor_id) const;
  // nullptr also if its connection is closed, so that nothing can be sent to it any more.
  Executor* FindConnected(uint64_t executor_id) const;
  // Whether any allocation is bound to the domain. If none is, nobody can attach there.
  bool HasAllocations(const std::string& domain) const;

  std::map<std::string, DoorAndAllocation> allocations;  // by name
  std::map<uint64_t, std::unique_ptr<Session>> sessions;
  std::map<uint64_t, std::unique_ptr<Executor>> executors;
  std::map<std::string, Executor*>
      serving;  // by trust domain, the executor that serves new sessions
  uint64_t last_id = 0;
};

}  // namespace gpuloom::scheduler
