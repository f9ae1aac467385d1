// SPDX-License-Identifier: Apache-2.0
// Conditional handles of a tenant's graphs.
#include "agent/executor/graph/conditional.h"

#include "agent/executor/device/device.h"
#include "agent/executor/graph/conditionals.h"
#include "agent/executor/graph/graph.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/session/work_pool.h"

namespace gpuloom::executor {

Reservation::~Reservation() {
  *session_conditions -= counted_conditions;
  *session_nodes -= counted_nodes;
  if (graph == nullptr) return;
  // The functions that the graph's nodes name must stay loaded until the graph is destroyed.
  pool->Post([doomed = graph, &cuda = device->cuda()] { cuda.cuGraphDestroy(doomed); },
             [held = std::move(libraries), held_charge = charge] {});
}

bool Reservation::Keep(uint64_t more_nodes, uint64_t more_bytes) {
  if (!charge->Add(more_nodes * kGraphNodeTakesBytes + more_bytes)) return false;
  kept_bytes += more_bytes;
  return true;
}

void Conditionals::On(wire::Tag<wire::ConditionCreate>,
                      const wire::ConditionCreate::Request& request, const wire::Record& record) {
  if ((request.flags & ~wire::kConditionAssignsDefault) != 0) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  ReservationEntry* entry = reservations_.Find(request.reservation);
  if (entry == nullptr) {
    entry = reservations_.Add(request.reservation);
    if (entry == nullptr) return Refuse(wire::Fatal::kBadHandle);
    entry->reservation = std::make_shared<Reservation>(services_.device, services_.modules,
                                                       conditions_, graph_nodes_, host_->budget);
    entry->reservation->context = port_->context();
  }
  const ReservationRef reservation = entry->reservation;
  const Caller caller = CallerOf(record);
  const Driver& cuda = services_.device->cuda();
  if (cuda.cuGraphConditionalHandleCreate == nullptr || cuda.cuGraphAddNode_v2 == nullptr) {
    return Reply<wire::ConditionCreate>(caller, CUDA_ERROR_NOT_SUPPORTED);
  }
  // An honest shim makes one call about a graph at a time.
  if (reservation->busy != 0) return Refuse(wire::Fatal::kBadArgument);
  if (reservation->counted_conditions == wire::kMaxConditions ||
      *conditions_ == wire::kMaxSessionConditions) {
    return Reply<wire::ConditionCreate>(caller, CUDA_ERROR_OUT_OF_MEMORY);
  }
  // Counted back only with the reservation: the driver cannot destroy a single handle.
  ++reservation->counted_conditions;
  ++*conditions_;
  ++reservation->creating;
  struct Made {
    CUresult result = CUDA_SUCCESS;
    CUgraphConditionalHandle handle = 0;
  };
  auto made = std::make_shared<Made>();
  modules_.Post(
      [reservation, made, request, &cuda] {
        if (reservation->graph == nullptr) {
          made->result = cuda.cuGraphCreate(&reservation->graph, 0);
          if (made->result != CUDA_SUCCESS) {
            reservation->graph = nullptr;
            return;
          }
        }
        // Without a default, the condition would start with whatever lies in the driver's memory
        // for it, perhaps another tenant's value.
        const bool assigns = (request.flags & wire::kConditionAssignsDefault) != 0;
        made->result = cuda.cuGraphConditionalHandleCreate(
            &made->handle, reservation->graph, reservation->context,
            assigns ? request.default_value : 0, CU_GRAPH_COND_ASSIGN_DEFAULT);
      },
      [this, reservation, made, caller] {
        --reservation->creating;
        if (made->result == CUDA_SUCCESS) reservation->handles.push_back(made->handle);
        if (!serving()) return;
        Reply<wire::ConditionCreate>(caller, services_.device->Judge(made->result), {made->handle});
      });
}

void Conditionals::On(wire::Tag<wire::ConditionsDrop>, const wire::ConditionsDrop::Request& request,
                      const wire::Record&) {
  // A Graph that is built from the reservation keeps it alive.
  if (reservations_.Take(request.reservation) == nullptr) Refuse(wire::Fatal::kBadHandle);
}

// The driver's conditional nodes must be in the graph for which their handles were made, so all
// handles of a definition belong to one reservation.
CUresult Conditionals::JudgeConditional(GraphPlan* plan, uint32_t entry) {
  const auto asked = plan->reader.Body<wire::GraphConditional>(plan->reader.Node(entry));
  const ReservationEntry* found = reservations_.Find(asked.reservation);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (plan->reservation != nullptr && plan->reservation != found->reservation) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  plan->reservation = found->reservation;
  const auto& handles = found->reservation->handles;
  if (asked.condition >= handles.size()) return CUDA_ERROR_INVALID_VALUE;
  // Grows if handles are made between two pieces of the judgement.
  plan->conditions.resize(handles.size());
  if (plan->conditions[asked.condition]) return CUDA_ERROR_INVALID_VALUE;  // another node's
  plan->conditions[asked.condition] = true;
  return asked.kind <= CU_GRAPH_COND_TYPE_SWITCH ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpuloom::executor
