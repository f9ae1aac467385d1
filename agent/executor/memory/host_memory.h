// SPDX-License-Identifier: Apache-2.0
// A session's arena on this side, and which parts of it are pinned. Outlives the session while
// something of it is still pinned (quiet.h). Ring thread only, but for Populated, Read and Write,
// which touch the descriptor only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "agent/executor/session/host_budget.h"
#include "agent/executor/session/range_table.h"
#include "proto/channel/region.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom::executor {

struct HostMemory {
  HostMemory() = default;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory() {
    if (on_end) on_end(std::move(mapping));
  }

  std::shared_ptr<SessionBudget> budget;  // of what the session costs beside its arena
  channel::UniqueFd arena;
  channel::Mapping mapping;  // at the tenant's address; touched by CUDA only
  channel::Range range;

  RangeTable registered;  // what the tenant may name in copies
  RangeTable pinned;      // registered, being registered, or waiting to be unpinned
  uint64_t pinned_bytes = 0;
  std::function<void()> on_unpinned;  // set while the session lives
  // Unmaps it, which takes long where much of it is in use, on a worker.
  std::function<void(channel::Mapping mapping)> on_end;

  // True when every page of the part is there. A hole would be filled on the node's account, not
  // the tenant's, by whoever touches it.
  bool Populated(uint64_t address, uint64_t size_bytes) const;
  // Copies out through the descriptor: a tenant that punches holes meanwhile gets zeros, and no
  // page is made.
  bool Read(uint64_t address, void* to, uint64_t size_bytes) const;
  // The other way.
  bool Write(uint64_t address, const void* from, uint64_t size_bytes) const;
};

}  // namespace gpuloom::executor
