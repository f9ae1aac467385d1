// SPDX-License-Identifier: Apache-2.0
// What the executor keeps for the conditional handles of one of a tenant's graphs: the driver's graph
// that they were made for, into which the definition is built when it comes
// (docs/design/conditional-nodes.md).
//
// Shared by the session's table and the one Graph that is made with it. Ring thread, its end too: the
// driver's graph is then destroyed on a worker. What a worker does with `graph` or fills in, it does
// alone: no handle is made while a Graph is built into it or updated, and Graphs come one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "agent/executor/device/device.h"
#include "agent/executor/session/work_pool.h"

namespace gpuloom::executor {

struct Reservation {
  // The counts are the session's: of handles, and of the driver's nodes in its graphs.
  Reservation(Device* owner, WorkPool* workers, std::shared_ptr<uint64_t> conditions,
              std::shared_ptr<uint64_t> nodes_of_session)
      : device(owner),
        pool(workers),
        session_conditions(std::move(conditions)),
        session_nodes(std::move(nodes_of_session)) {}
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  Device* const device;
  WorkPool* const pool;
  const std::shared_ptr<uint64_t> session_conditions;
  const std::shared_ptr<uint64_t> session_nodes;
  uint64_t counted_conditions = 0;
  uint64_t counted_nodes = 0;

  CUgraph graph = nullptr;  // made with the first handle
  std::vector<CUgraphConditionalHandle> handles;
  uint32_t creating = 0;  // handles that a worker makes
  uint32_t users = 0;     // 1 from Graph::Prepare until the Graph's executable form is destroyed
  uint32_t busy = 0;      // builds and updates that are not finished

  // By Graph::Build.
  enum class State : uint8_t { kEmpty, kBuilt, kBroken } state = State::kEmpty;
  uint64_t shape_hash = 0;
  std::vector<CUgraphNode> nodes;
  std::vector<std::shared_ptr<const void>> libraries;  // of the functions that the nodes name
};
using ReservationRef = std::shared_ptr<Reservation>;

}  // namespace gpuloom::executor
