// SPDX-License-Identifier: Apache-2.0
// Conditional nodes of graphs. Kernels get a handle as a parameter long before the graph's definition is sent, so the
// executor keeps a driver graph for the handles: a reservation. The definition's conditional nodes refer to it
// (graph_nodes.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"
#include "proto/wire/graph_nodes.h"

namespace gpuloom::wire {

inline constexpr uint32_t kMaxReservations = 1u << 16;
// The most handles per reservation, and per session.
inline constexpr uint32_t kMaxConditions = 4096;
inline constexpr uint32_t kMaxSessionConditions = 1u << 16;

// In ConditionCreate::Request::flags: each launch starts with the value default_value.
inline constexpr uint32_t kConditionAssignsDefault = 1;

// The first one for an id creates the reservation. Handles of a reservation are numbered from 0 in the order of these
// commands that succeeded. None is added while a graph of it is made or updated.
struct ConditionCreate {
  static constexpr std::string_view kName = "ConditionCreate";
  static constexpr bool kReply = true;
  struct Request {
    ReservationId reservation;
    uint32_t default_value;
    uint32_t flags;  // kCondition…
    uint32_t unused;
  };
  struct Reply {
    uint64_t handle;  // CUgraphConditionalHandle
  };
};

// The tenant may not name the reservation any more; executable graphs made with it stay.
struct ConditionsDrop {
  static constexpr std::string_view kName = "ConditionsDrop";
  static constexpr bool kReply = false;
  struct Request {
    ReservationId reservation;
  };
  using Reply = NoReply;
};

}  // namespace gpuloom::wire
