// SPDX-License-Identifier: Apache-2.0
// Moves graphs of a session whose multiprocessors or class have changed. An executable graph keeps the multiprocessors
// that it was made for, and its nodes' priorities, so it is made again, before its next launch.
#include <memory>
#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/graph/graph.h"
#include "agent/executor/graph/graphs.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {

// Kernel nodes of the driver's graphs get the new context, then all sections are instantiated anew,
// and only when that has worked do the new executable graphs take the old ones' place.
CUresult Graph::MoveTo(CUcontext context, const PriorityBand& band) {
  const Driver& cuda = device_->cuda();
  // The driver's graphs contain every update, except for nodes that are switched off.
  for (const Node& node : nodes_) {
    if (node.kernel == nullptr) continue;
    CUDA_KERNEL_NODE_PARAMS_v2 params = {};
    CUDA_RETURN_IF_ERROR(cuda.cuGraphKernelNodeGetParams_v2(node.handle, &params));
    // The node is named by kernel: a function would run on all multiprocessors (kernel_node.h).
    params.func = nullptr;
    params.kern = node.kernel;
    params.ctx = context;
    CUDA_RETURN_IF_ERROR(cuda.cuGraphKernelNodeSetParams_v2(node.handle, &params));
    if (node_priorities_) CUDA_RETURN_IF_ERROR(SetPriority(node, band));
  }
  std::vector<Section> made(sections_.size());
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < made.size() && result == CUDA_SUCCESS; ++i) {
    if (sections_[i].exec == nullptr) continue;
    made[i].graph = sections_[i].graph;
    result = Instantiate(&made[i]);
  }
  for (const Node& node : nodes_) {
    if (result != CUDA_SUCCESS) break;
    if (!node.disabled || node.on_host) continue;
    result = cuda.cuGraphNodeSetEnabled(made[node.section].exec, node.handle, 0);
  }
  for (size_t i = 0; i < made.size(); ++i) {
    if (result == CUDA_SUCCESS) std::swap(made[i].exec, sections_[i].exec);
    if (made[i].exec != nullptr) cuda.cuGraphExecDestroy(made[i].exec);
  }
  if (result != CUDA_SUCCESS) return result;
  context_ = context;
  band_ = band;
  return result;
}

// Called for each launch that could go next. It starts the move, which continues while other sessions work; launches
// and updates of the graph wait meanwhile.
bool Graphs::Follows(const GraphRef& graph) {
  const CUcontext context = port_->context();
  const PriorityBand band = port_->Band();
  if (graph->moving) return false;
  const bool is_there = graph->context() == context && graph->IsIn(band);
  if (is_there || graph->reservation() != nullptr) return true;
  // A move that has failed is not tried again before the session's multiprocessors or class change again.
  if (graph->move_result != CUDA_SUCCESS && graph->moved_to == context &&
      graph->moved_into == band) {
    return true;
  }
  if (!graph->updates.empty() && graph->updates.front().running) return false;
  graph->moving = true;
  graph->moved_to = context;
  graph->moved_into = band;
  // Both the old and the new graphs exist here.
  struct Room {
    GraphRoom* of;
    uint64_t graphs;
    uint64_t nodes;
    Room(GraphRoom* room, uint64_t more_graphs, uint64_t more_nodes)
        : of(room), graphs(more_graphs), nodes(more_nodes) {
      of->graphs += graphs;
      of->nodes += nodes;
    }
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    ~Room() {
      of->graphs -= graphs;
      of->nodes -= nodes;
    }
  };
  const bool fits = services_.graphs->Fits(graph->branches(), graph->nodes());
  auto room = std::make_shared<Room>(services_.graphs, graph->branches(), graph->nodes());
  auto move = [graph, context, band] { graph->move_result = graph->MoveTo(context, band); };
  const auto finish = [this, graph, room] {
    room->of->OnMade();
    services_.device->Judge(graph->move_result);
    graph->moving = false;
    if (serving()) TryUpdate(graph);
  };
  if (fits) {
    modules_.PostNext(std::move(move), finish);
    return false;
  }
  ++outstanding_;
  services_.quiet->Need(owner(), std::move(move), [this, finish] {
    --outstanding_;
    finish();
  });
  return false;
}

}  // namespace gpuloom::executor
