// SPDX-License-Identifier: Apache-2.0
// The part of a session for the conditional handles of its graphs (docs/design/conditional-nodes.md). Ring thread
// only. Owns the ids; a reservation is shared with the graph that is made with it, and so are the counts, which
// therefore may outlive the session.
#pragma once

#include <cstdint>
#include <memory>

#include "agent/executor/graph/conditional.h"
#include "agent/executor/session/id_table.h"
#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

struct GraphPlan;

class Conditionals final : public Part {
 public:
  explicit Conditionals(SessionPort* port) : Part(port) {}

  void On(wire::Tag<wire::ConditionCreate>, const wire::ConditionCreate::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::ConditionsDrop>, const wire::ConditionsDrop::Request&,
          const wire::Record&);

  // Checks that the definition names handles of one reservation, each once; the plan holds it.
  CUresult JudgeConditional(GraphPlan* plan, uint32_t entry);
  // Count of the driver's nodes in all of the session's graphs; the code that creates nodes counts them here.
  const std::shared_ptr<uint64_t>& graph_nodes() const { return graph_nodes_; }

  // At session end: drops one piece; returns true if that was the last.
  bool DropPiece() { return executor::DropPiece(&reservations_); }

 private:
  struct ReservationEntry {
    ReservationRef reservation;
  };

  const std::shared_ptr<uint64_t> graph_nodes_ = std::make_shared<uint64_t>(0);
  const std::shared_ptr<uint64_t> conditions_ = std::make_shared<uint64_t>(0);
  IdTable<wire::ReservationId, ReservationEntry, wire::kMaxReservations> reservations_;
};

}  // namespace gpuloom::executor
