// SPDX-License-Identifier: Apache-2.0
// The part of a session for graphs (docs/design/running-graphs.md): created and updated in order
// with their launches, launched like any other stream command. Ring thread only.
//
// Owns the ids; a Graph is shared with its launches, queued and running, and outlives its id with them (graph.h). The
// parts that this one points to are made before it and outlive it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "agent/executor/graph/graph.h"
#include "agent/executor/session/id_table.h"
#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

class Arrays;
class Conditionals;
class DeviceMemory;
class Events;
class HostCopies;
class HostFunctions;
class Libraries;
class MemoryOperations;
struct GraphWork;
struct StreamCommand;

class Graphs final : public Part {
 public:
  Graphs(SessionPort* port, HostFunctions* host_functions, HostCopies* host_copies,
         MemoryOperations* memory_operations, Events* events, const Arrays* arrays,
         const DeviceMemory* device_memory, Libraries* libraries, Conditionals* conditions)
      : Part(port),
        host_functions_(host_functions),
        host_copies_(host_copies),
        memory_operations_(memory_operations),
        events_(events),
        arrays_(arrays),
        device_memory_(device_memory),
        libraries_(libraries),
        conditions_(conditions) {}

  void On(wire::Tag<wire::GraphInstantiate>, const wire::GraphInstantiate::Request&,
          const wire::Record&);
  void On(wire::Tag<wire::GraphUpdate>, const wire::GraphUpdate::Request&, const wire::Record&);
  void On(wire::Tag<wire::GraphUpload>, const wire::GraphUpload::Request&, const wire::Record&);
  void On(wire::Tag<wire::GraphLaunch>, const wire::GraphLaunch::Request&, const wire::Record&);
  void On(wire::Tag<wire::GraphDestroy>, const wire::GraphDestroy::Request&, const wire::Record&);

  // Submits to CUDA.
  CUresult SubmitGraph(Stream& stream, wire::Ticket ticket, GraphWork& work, CUresult made);
  // Returns true if the graph may be launched as far as its multiprocessors go; else it is being moved to the session's
  // present ones, or could not be: SubmitGraph then says why.
  bool Follows(const GraphRef& graph);
  // For the stream's commands that are done, or that will never be submitted to CUDA. Returns how many of them had events
  // with timing (GraphRun::timing).
  [[nodiscard]] uint32_t FinishGraphs(Stream& stream);
  // Makes graphs whose reservation's earlier Graph is gone, or for which there are events now.
  void MakeWaitingGraphs();

  // Call when the session ends.
  void End() {
    graphs_to_make_.clear();
    graphs_short_of_events_.clear();
  }
  // After End: drops one piece; returns true if that was the last.
  bool DropPiece() { return executor::DropPiece(&graphs_); }

 private:
  struct GraphEntry {
    GraphRef graph;  // null while it is being created
  };
  // Waits for the end of the previous Graph made with its reservation, or for events.
  struct GraphToMake {
    Caller caller;
    wire::GraphInstantiate::Request request;
    PlanRef plan;
  };

  struct GraphBlock;
  bool FindGraphBlock(wire::HostPtr address, uint64_t size_bytes, const wire::Record& record,
                      GraphPlan* plan, GraphBlock* block);  // refuses if it is not in the arena
  // Validates up to `entries` more entries; returns true when the plan has been validated.
  bool JudgeGraph(GraphPlan* plan, uint32_t entries);
  void MakeGraph(Caller caller, const wire::GraphInstantiate::Request& request,
                 const PlanRef& plan);
  Graph* FindGraph(wire::GraphId id_untrusted);  // refuses if there is none
  void JudgeUpdate(const GraphRef& graph, wire::Ticket ticket);
  void TryUpdate(const GraphRef& graph);
  // Turns the launch into several parts, between which host nodes run.
  std::shared_ptr<SectionedLaunch> CutLaunch(const Stream& stream, const GraphRef& graph,
                                             StreamCommand* command);
  // The launch has reached `launch->next`. Returns false while host nodes before that section are still running.
  bool ReachesSection(const std::shared_ptr<SectionedLaunch>& launch);
  bool TakesHostsTurn(const std::shared_ptr<SectionedLaunch>& launch);  // true: they are done
  void FinishUpdate(Graph& graph);
  // Returns false if it has to wait, or the session ends.
  bool TakesReservation(Caller caller, const wire::GraphInstantiate::Request& request,
                        const PlanRef& plan);

  // graph_judge.cc
  CUresult JudgeGraphNode(GraphPlan* plan, uint32_t entry);
  CUresult JudgeGraphKernel(GraphPlan* plan, uint32_t entry);
  CUresult JudgeGraphOperations(const GraphPlan& plan, const wire::GraphNode& node) const;

  HostFunctions* const host_functions_;
  HostCopies* const host_copies_;
  MemoryOperations* const memory_operations_;
  Events* const events_;
  const Arrays* const arrays_;
  const DeviceMemory* const device_memory_;
  Libraries* const libraries_;
  Conditionals* const conditions_;
  IdTable<wire::GraphId, GraphEntry, wire::kMaxGraphs> graphs_;
  std::vector<GraphToMake> graphs_to_make_;
  std::deque<GraphToMake> graphs_short_of_events_;
  uint32_t waiting_nodes_ = 0;  // nodes in launches that wait for values
};

}  // namespace gpuloom::executor
