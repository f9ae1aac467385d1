// SPDX-License-Identifier: Apache-2.0
// Graphs with conditional nodes are built into the driver's graph that their handles were made for.
// There is one, so when such a graph is instantiated again, its nodes are there already: they get
// their parameters anew, whatever those were and whatever has become of what they named.
#include "agent/executor/device/device.h"
#include "agent/executor/graph/graph.h"
#include "agent/executor/graph/graph_node.h"
#include "agent/executor/process/log.h"

namespace gpuloom::executor {

using wire::GraphNodeKind;

void Graph::Renew(GraphPlan* plan) {
  Reservation& reserved = *reservation_;
  const uint64_t shape = HashShape(*plan);
  // The reservation's graph holds the section with the conditions; this Graph owns the other
  // sections.
  if (reserved.state == Reservation::State::kEmpty) {
    // Until all nodes are there: a build that fails half-way leaves nodes that nothing can take out
    // again.
    reserved.state = Reservation::State::kBroken;
    reserved.libraries = plan->libraries;
    AddAll(plan);
    if (plan->result != CUDA_SUCCESS) return;
    for (const Node& node : nodes_) {
      // The others are destroyed with this Graph.
      reserved.nodes.push_back(sections_[node.section].is_reserved ? node.handle : nullptr);
    }
    reserved.shape_hash = shape;
    reserved.state = Reservation::State::kBuilt;
    return;
  }
  if (reserved.state == Reservation::State::kBroken || reserved.shape_hash != shape ||
      reserved.nodes.size() != nodes_.size()) {
    Log(LogLevel::kDebug,
        "cuda: a graph with conditional nodes can be instantiated again with other parameters, not "
        "with other nodes, edges or attributes");
    plan->result = CUDA_ERROR_NOT_SUPPORTED;
    return;
  }
  // Only the sections that this Graph owns: nodes that are there are skipped (IsThere).
  AddAll(plan);
  if (plan->result != CUDA_SUCCESS) return;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (!sections_[nodes_[i].section].is_reserved || nodes_[i].on_host) continue;
    nodes_[i].handle = reserved.nodes[i];
    const CUresult renewed = RenewNode(*plan, i);
    if (renewed != CUDA_SUCCESS) {
      // Some nodes already use what this plan names.
      reserved.state = Reservation::State::kBroken;
      reserved.libraries.insert(reserved.libraries.end(), plan->libraries.begin(),
                                plan->libraries.end());
      return plan->Fail(renewed, i);
    }
  }
  // The old libraries are released with the plan, on the ring thread: a worker must not unload
  // them.
  reserved.libraries.swap(plan->libraries);
}

// Attributes are not set: they are part of the shape, and so what they were. A conditional node
// keeps its handle and its bodies.
CUresult Graph::RenewNode(const GraphPlan& plan, uint32_t i) {
  const Driver& cuda = device_->cuda();
  const wire::GraphNode form = plan.reader.Node(i);
  Node& node = nodes_[i];
  switch (form.kind) {
    case GraphNodeKind::kKernel: {
      const GraphKernelParams kernel(plan, i, context_, cuda);
      node.kernel = plan.callees[i].kernel;
      node.attributes_hash = HashAttributes(plan, form);
      return cuda.cuGraphKernelNodeSetParams_v2(node.handle, &kernel.value());
    }
    case GraphNodeKind::kCopy: {
      const CUDA_MEMCPY3D copy = CopyNode(plan, i);
      return cuda.cuGraphMemcpyNodeSetParams(node.handle, &copy);
    }
    case GraphNodeKind::kFill: {
      const auto fill = FillNode(plan.reader.Body<wire::GraphFill>(form));
      return cuda.cuGraphMemsetNodeSetParams(node.handle, &fill);
    }
    case GraphNodeKind::kMemoryOperations: {
      auto operations = Operations(plan, form);
      const auto batch = BatchNode(&operations, CopyContext());
      return cuda.cuGraphBatchMemOpNodeSetParams(node.handle, &batch);
    }
    case GraphNodeKind::kEventRecord:
      return cuda.cuGraphEventRecordNodeSetEvent(node.handle, records_[node.place].cuda->event);
    case GraphNodeKind::kEmpty:
    case GraphNodeKind::kEventWait:
    case GraphNodeKind::kHost:
    case GraphNodeKind::kConditional:
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpuloom::executor
