// SPDX-License-Identifier: Apache-2.0
// The executor's view of a session's arena, and which parts of it are pinned. Shared by the session
// and by what is still pinned, so that it may outlive the session (quiet.h). Ring thread only,
// except Populated, Read and Write, which use only the descriptor.
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

  std::shared_ptr<SessionBudget> budget;  // for the session's memory besides its arena
  channel::UniqueFd arena;
  channel::Mapping mapping;  // at the tenant's address; accessed by CUDA only
  channel::Range range;

  RangeTable registered;  // ranges that the tenant may name in copies
  RangeTable pinned;      // registered, being registered, or waiting to be unpinned
  uint64_t pinned_bytes = 0;
  uint64_t retired_bytes = 0;  // of these, those that wait to be unpinned
  // At the end of `range`: does not belong to the arena once a tenant has requested it.
  channel::Range managed;
  RangeTable leaving_managed;         // addresses of it that are still to be unmapped
  RangeTable mapped_again;            // registered, and mapped a second time for managed memory
  uint64_t mapped_again_bytes = 0;    // in these, and in those still to be unmapped
  std::function<void()> on_unpinned;  // set while the session lives
  std::function<void()> on_left;      // the same, for addresses of leaving_managed
  // Unmaps the arena on a worker, since this is slow if much of it is in use.
  std::function<void(channel::Mapping mapping)> on_end;

  // Returns true if every page of the range is populated. Touching a hole would allocate a page
  // charged to the node, not to the tenant.
  bool Populated(uint64_t address, uint64_t size_bytes) const;
  // Reads through the descriptor: if the tenant punches holes meanwhile we get zeros, and no page
  // is allocated.
  bool Read(uint64_t address, void* to, uint64_t size_bytes) const;
  // The reverse. Returns false if a page is not populated.
  bool Write(uint64_t address, const void* from, uint64_t size_bytes) const;
};

}  // namespace gpuloom::executor
