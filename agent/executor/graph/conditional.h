// SPDX-License-Identifier: Apache-2.0
// The executor's state for the conditional handles of one tenant graph: the driver graph they were
// created for, into which the definition is built when it arrives (docs/design/conditional-nodes.md).
//
// Shared by the session's table and the one Graph made with it. Ring thread only, including its destructor,
// which leaves destroying the driver's graph to a worker. A worker that uses or fills `graph` has it
// exclusively: no handle is created while a Graph is built into it or updated, and Graphs come one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "agent/executor/session/host_budget.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

class Device;
class WorkPool;

struct Reservation {
  // The counts are the session's: of its handles, and of driver nodes in its graphs.
  Reservation(Device* owner, WorkPool* workers, std::shared_ptr<uint64_t> conditions,
              std::shared_ptr<uint64_t> nodes_of_session, std::shared_ptr<SessionBudget> budget)
      : device(owner),
        pool(workers),
        session_conditions(std::move(conditions)),
        session_nodes(std::move(nodes_of_session)),
        charge(std::make_shared<HostCharge>(std::move(budget))) {}
  ~Reservation();
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  // The driver's graph, which outlives the Graph made with it, gets so much larger. Returns false if the session has no
  // host memory left for it.
  [[nodiscard]] bool Keep(uint64_t more_nodes, uint64_t more_bytes);

  Device* const device;
  WorkPool* const pool;
  const std::shared_ptr<uint64_t> session_conditions;
  const std::shared_ptr<uint64_t> session_nodes;
  uint64_t counted_conditions = 0;
  uint64_t counted_nodes = 0;
  uint64_t kept_bytes = 0;                   // of bodies
  const std::shared_ptr<HostCharge> charge;  // held until the driver's graph is destroyed

  CUgraph graph = nullptr;      // created with the first handle
  CUcontext context = nullptr;  // of the handles and of all nodes, as CUDA wants it
  std::vector<CUgraphConditionalHandle> handles;
  uint32_t creating = 0;  // handles being created on a worker
  uint32_t users = 0;     // 1 from Graph::Prepare until that Graph's executable graph is destroyed
  uint32_t busy = 0;      // builds and updates in progress

  // Set by Graph::Build.
  enum class State : uint8_t { kEmpty, kBuilt, kBroken } state = State::kEmpty;
  uint64_t shape_hash = 0;
  std::vector<CUgraphNode> nodes;
  std::vector<std::shared_ptr<const void>> libraries;  // of the functions that the nodes name
};
using ReservationRef = std::shared_ptr<Reservation>;

}  // namespace gpuloom::executor
