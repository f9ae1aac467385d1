// SPDX-License-Identifier: Apache-2.0
// From judged definitions to the driver's graphs.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "agent/executor/copy/host_copy.h"
#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/graph/graph.h"
#include "agent/executor/graph/graph_node.h"
#include "agent/executor/graph/graph_width.h"
#include "agent/executor/session/work_pool.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {

using wire::GraphNodeKind;

namespace {

// The edges of one of the driver's graphs, added with one call.
struct Edges {
  CUgraph graph = nullptr;
  std::vector<CUgraphNode> from;
  std::vector<CUgraphNode> to;
  std::vector<CUgraphEdgeData> data;
  bool is_plain = true;  // each a full dependency
};

CUresult AddTo(const Driver& cuda, const Edges& edges) {
  if (cuda.cuGraphAddDependencies_v2 != nullptr) {
    return cuda.cuGraphAddDependencies_v2(edges.graph, edges.from.data(), edges.to.data(),
                                          edges.data.data(), edges.from.size());
  }
  // Before CUDA 12.3 there is no other kind.
  if (!edges.is_plain) return CUDA_ERROR_NOT_SUPPORTED;
  return cuda.cuGraphAddDependencies(edges.graph, edges.from.data(), edges.to.data(),
                                     edges.from.size());
}

}  // namespace

GraphPlan::GraphPlan(std::shared_ptr<SessionBudget> budget) : charge(std::move(budget)) {}
GraphPlan::~GraphPlan() { FreeElsewhere(std::move(block)); }

GraphRecordEvent::~GraphRecordEvent() {
  if (event != nullptr) device->GiveEvent(true, event);
}

// The last holder (the session's table, a queued or a running launch) destroys it, on the ring thread. The counts stay
// until the driver's objects are destroyed, as their memory does.
Graph::~Graph() {
  bool any_exec = false;
  for (const Section& section : sections_) any_exec = any_exec || section.exec != nullptr;
  const bool retired = reservation_ != nullptr && any_exec;
  auto destroy = [sections = std::move(sections_), &cuda = device_->cuda()] {
    for (const Section& section : sections) {
      if (section.exec != nullptr) cuda.cuGraphExecDestroy(section.exec);
      if (section.graph != nullptr && !section.is_reserved) cuda.cuGraphDestroy(section.graph);
    }
  };
  auto done = [libraries = std::move(libraries_), records = std::move(records_), room = room_,
               session_nodes = session_nodes_, nodes = counted_nodes_, graphs = counted_branches_,
               retired, reservation = std::move(reservation_), charge = charge_,
               device_charge = std::move(device_charge_)] {
    if (reservation != nullptr) --reservation->users;
    *session_nodes -= nodes;
    room->graphs -= graphs;
    room->nodes -= nodes;
    room->retired -= retired;
  };
  if (retired) {
    ++room_->retired;
    quiet_->Retire(std::move(destroy), std::move(done));
    return;
  }
  // Without conditional nodes neither waits, not even for its own launches that still run; what they
  // use goes when they are done.
  pool_->Post(std::move(destroy), std::move(done));
}

CUcontext Graph::CopyContext() const {
  return reservation_ == nullptr ? device_->context() : reservation_->context;
}

// The destructor takes back what is counted here, or the reservation's does for the reservation's graph, whether or not
// the build succeeds.
CUresult Graph::Prepare(const GraphPlan& plan) {
  reservation_ = plan.reservation;
  context_ = reservation_ == nullptr ? plan.context : reservation_->context;
  node_priorities_ = plan.node_priorities;
  band_ = plan.band;
  device_charge_ = plan.device_charge;
  // The driver has a graph for each body, empty ones too.
  const uint64_t bodies = plan.scopes.scopes().empty() ? 0 : plan.scopes.scopes().size() - 1;
  const uint64_t parts = plan.reader.nodes() + bodies;
  if (reservation_ != nullptr) {
    ++reservation_->users;
    // The driver's graph outlives this one.
    const uint64_t more = parts - std::min(parts, reservation_->counted_nodes);
    if (*session_nodes_ + more > kMaxSessionGraphNodes) return CUDA_ERROR_OUT_OF_MEMORY;
    reservation_->counted_nodes += more;
    *session_nodes_ += more;
    const uint64_t more_kept =
        plan.kept_bytes - std::min(plan.kept_bytes, reservation_->kept_bytes);
    if (!reservation_->Keep(more, more_kept)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (*session_nodes_ + parts > kMaxSessionGraphNodes) return CUDA_ERROR_OUT_OF_MEMORY;
  // An update may give a node as many operations as are allowed.
  constexpr uint64_t kOperationsTake =
      wire::kMaxGraphMemoryOperations * sizeof(wire::GraphMemoryOperation);
  if (!charge_->Add(parts * kGraphNodeTakesBytes + kGraphKeepsBodies * plan.kept_bytes +
                    plan.waiting_nodes * kOperationsTake)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  counted_nodes_ = parts;
  *session_nodes_ += counted_nodes_;
  counted_branches_ = plan.branches;
  heads_ = std::max(plan.heads, 1u);
  room_->graphs += counted_branches_;
  room_->nodes += counted_nodes_;
  if (plan.sections.conditions_are_cut) return CUDA_ERROR_NOT_SUPPORTED;
  waits_for_values_ = plan.waiting_nodes != 0;
  kernels_ = plan.kernels;
  prints_ = plan.prints;
  libraries_ = plan.libraries;
  const bool nodes_are_uploaded =
      plan.reader.nodes() >= kUploadNodes || reservation_ != nullptr || plan.sections.count() > 1;
  if (nodes_are_uploaded && room_->stream == nullptr) {
    CUDA_RETURN_IF_ERROR(device_->TakeStream(0, &room_->stream));
  }
  return CUDA_SUCCESS;
}

// Prepares the table of nodes and the sections.
CUresult Graph::Lay(const GraphPlan& plan) {
  std::sort(libraries_.begin(), libraries_.end());
  nodes_.resize(plan.reader.nodes());
  sections_.resize(plan.sections.count());
  for (uint32_t i = 0; i < sections_.size(); ++i) {
    sections_[i].has_nodes = plan.sections.nodes[i] != 0;
  }
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const wire::GraphNode node = plan.reader.Node(i);
    nodes_[i].kind = node.kind;
    nodes_[i].kept_bytes = static_cast<uint32_t>(KeptBytes(plan.reader, node));
    nodes_[i].param_bytes = static_cast<uint32_t>(ParamBytes(plan.reader, node));
    nodes_[i].section = plan.sections.of_node[i];
    Section& section = sections_[nodes_[i].section];
    if (node.kind == GraphNodeKind::kEventRecord) {
      nodes_[i].place = static_cast<uint32_t>(records_.size());
      auto event = std::make_shared<GraphRecordEvent>(device_);
      const CUresult result = plan.events->Make(&event->event);
      records_.push_back({i, plan.reader.Body<wire::GraphEvent>(node).event, std::move(event)});
      if (result != CUDA_SUCCESS) return result;
    } else if (node.kind == GraphNodeKind::kEventWait) {
      nodes_[i].place = static_cast<uint32_t>(waits_.size());
      waits_.push_back({i, plan.reader.Body<wire::GraphEvent>(node).event});
    } else if (RunsOnHost(plan.reader, node)) {
      nodes_[i].on_host = true;
      nodes_[i].place = static_cast<uint32_t>(section.host_nodes.size());
      SetHostNode(plan, i, &section.host_nodes.emplace_back());
    } else if (node.kind == GraphNodeKind::kConditional) {
      section.graph = reservation_->graph;
      section.is_reserved = true;
    }
  }
  return CUDA_SUCCESS;
}

// Everything is copied: the plan's block goes when the graph is made.
void Graph::SetHostNode(const GraphPlan& plan, uint32_t entry, HostNode* host_node) {
  const wire::GraphNode node = plan.reader.Node(entry);
  if (node.kind == GraphNodeKind::kHost) {
    host_node->token = plan.reader.Body<wire::GraphHostCall>(node).token;
  } else if (node.kind == GraphNodeKind::kCopy) {
    host_node->copy = plan.reader.Body<wire::GraphCopy>(node);
  } else {
    auto operations = std::make_shared<std::vector<wire::GraphMemoryOperation>>();
    for (uint32_t i = 0; i < plan.reader.Operations(node); ++i) {
      operations->push_back(plan.reader.Operation(node, i));
    }
    host_node->operations = std::move(operations);
  }
}

void Graph::Build(GraphPlan* plan) {
  const Driver& cuda = device_->cuda();
  plan->result = Lay(*plan);
  for (Section& section : sections_) {
    if (plan->result != CUDA_SUCCESS) return;
    // A section without device nodes needs no launch. A graph of one section has an executable
    // graph even if it is empty.
    if (section.is_reserved || !(section.has_nodes || sections_.size() == 1)) continue;
    plan->result = cuda.cuGraphCreate(&section.graph, 0);
  }
  if (plan->result != CUDA_SUCCESS) return;
  if (reservation_ != nullptr) {
    Renew(plan);
  } else {
    AddAll(plan);
  }
  for (Section& section : sections_) {
    if (plan->result != CUDA_SUCCESS) return;
    if (section.graph != nullptr) plan->result = Instantiate(&section);
  }
}

CUresult Graph::Instantiate(Section* section) {
  const Driver& cuda = device_->cuda();
  const unsigned long long flags =
      node_priorities_ ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0;
  CUDA_RETURN_IF_ERROR(cuda.cuGraphInstantiateWithFlags(&section->exec, section->graph, flags));
  return IsUploaded() ? cuda.cuGraphUpload(section->exec, room_->stream) : CUDA_SUCCESS;
}

bool Graph::IsThere(uint32_t node) const {
  return sections_[nodes_[node].section].is_reserved &&
         reservation_->state == Reservation::State::kBuilt;
}

void Graph::AddAll(GraphPlan* plan) {
  std::vector<CUgraph> bodies = {nullptr};  // by scope
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const Section& section = sections_[nodes_[i].section];
    if (nodes_[i].on_host || IsThere(i)) continue;
    const uint32_t scope = plan->scopes.ScopeOf(i);
    const CUgraph graph = scope == 0 ? section.graph : bodies[scope];
    const bool conditional = nodes_[i].kind == GraphNodeKind::kConditional;
    const CUresult added =
        conditional ? AddConditional(*plan, i, graph, &bodies) : AddNode(*plan, i, graph);
    if (added != CUDA_SUCCESS) return plan->Fail(added, i);
  }
  plan->result = AddEdges(*plan, bodies);
}

// The driver makes the body graphs. They are appended in the order of the definition's scopes,
// which are those of the conditional nodes in turn.
CUresult Graph::AddConditional(const GraphPlan& plan, uint32_t i, CUgraph graph,
                               std::vector<CUgraph>* bodies) {
  const auto asked = plan.reader.Body<wire::GraphConditional>(plan.reader.Node(i));
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = reservation_->handles[asked.condition];
  params.conditional.type = static_cast<CUgraphConditionalNodeType>(asked.kind);
  params.conditional.size = asked.bodies;
  params.conditional.ctx = CopyContext();
  CUDA_RETURN_IF_ERROR(
      device_->cuda().cuGraphAddNode_v2(&nodes_[i].handle, graph, nullptr, nullptr, 0, &params));
  const CUgraph* made = params.conditional.phGraph_out;
  bodies->insert(bodies->end(), made, made + asked.bodies);
  return CUDA_SUCCESS;
}

// Without dependencies: all edges are added together later.
CUresult Graph::AddNode(const GraphPlan& plan, uint32_t i, CUgraph graph) {
  const Driver& cuda = device_->cuda();
  const wire::GraphNode node = plan.reader.Node(i);
  CUgraphNode* handle = &nodes_[i].handle;
  switch (node.kind) {
    case GraphNodeKind::kConditional:  // AddConditional
    case GraphNodeKind::kHost:         // between sections, as other nodes of the host's
      break;
    case GraphNodeKind::kEmpty:
    case GraphNodeKind::kEventWait:  // the whole launch waits: see Session::On(GraphLaunch)
      return cuda.cuGraphAddEmptyNode(handle, graph, nullptr, 0);
    case GraphNodeKind::kKernel: {
      const GraphKernelParams kernel(plan, i, context_, cuda);
      nodes_[i].kernel = plan.callees[i].kernel;
      CUDA_RETURN_IF_ERROR(
          cuda.cuGraphAddKernelNode_v2(handle, graph, nullptr, 0, &kernel.value()));
      nodes_[i].attributes_hash = HashAttributes(plan, node);
      return SetAttributes(plan, i, &nodes_[i]);
    }
    case GraphNodeKind::kCopy: {
      const CUDA_MEMCPY3D copy = CopyNode(plan, i);
      return cuda.cuGraphAddMemcpyNode(handle, graph, nullptr, 0, &copy, CopyContext());
    }
    case GraphNodeKind::kFill: {
      const auto fill = FillNode(plan.reader.Body<wire::GraphFill>(node));
      return cuda.cuGraphAddMemsetNode(handle, graph, nullptr, 0, &fill, CopyContext());
    }
    case GraphNodeKind::kEventRecord:
      return cuda.cuGraphAddEventRecordNode(handle, graph, nullptr, 0,
                                            records_[nodes_[i].place].cuda->event);
    case GraphNodeKind::kMemoryOperations: {
      auto operations = Operations(plan, node);
      const auto batch = BatchNode(&operations, CopyContext());
      return cuda.cuGraphAddBatchMemOpNode(handle, graph, nullptr, 0, &batch);
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult Graph::AddEdges(const GraphPlan& plan, const std::vector<CUgraph>& bodies) {
  std::vector<Edges> of_section(sections_.size()), of_body(bodies.size());
  const auto add = [&](uint32_t from, uint32_t to, const CUgraphEdgeData& data) {
    const uint32_t scope = plan.scopes.ScopeOf(from);
    const uint32_t section = nodes_[from].section;
    Edges& edges = scope == 0 ? of_section[section] : of_body[scope];
    edges.graph = scope == 0 ? sections_[section].graph : bodies[scope];
    edges.from.push_back(nodes_[from].handle);
    edges.to.push_back(nodes_[to].handle);
    edges.data.push_back(data);
    edges.is_plain &= data.from_port == 0 && data.to_port == 0 && data.type == 0;
  };
  for (uint32_t i = 0; i < plan.reader.edges(); ++i) {
    const wire::GraphEdge edge = plan.reader.Edge(i);
    const Node &from = nodes_[edge.from], &to = nodes_[edge.to];
    // A host node stands between sections, which are launched one after the other: so do its edges.
    if (from.section != to.section || from.on_host || to.on_host || IsThere(edge.from)) continue;
    CUgraphEdgeData data = {};
    data.from_port = edge.from_port;
    data.to_port = edge.to_port;
    data.type = edge.type;
    add(edge.from, edge.to, data);
  }
  const auto graph_of = [&](uint32_t node) -> std::optional<uint64_t> {
    // What waits for a value may wait for a node that would come behind it.
    if (plan.waiting_nodes != 0 || nodes_[node].on_host || IsThere(node)) return std::nullopt;
    return uint64_t{plan.scopes.ScopeOf(node)} << 32 | nodes_[node].section;
  };
  for (const auto& [from, to] : EdgesAgainstWidth(plan.reader, graph_of)) add(from, to, {});
  for (const auto* all : {&of_section, &of_body}) {
    for (const Edges& edges : *all) {
      if (edges.from.empty()) continue;
      CUDA_RETURN_IF_ERROR(AddTo(device_->cuda(), edges));
    }
  }
  return CUDA_SUCCESS;
}

// Priorities are mapped into the band of the session's class. Where nodes' priorities count (and
// not the stream's), a node without one would have the device's default, which may lie outside the
// band.
CUresult Graph::SetAttributes(const GraphPlan& plan, uint32_t entry, Node* node) const {
  const wire::GraphNode form = plan.reader.Node(entry);
  const auto kernel = plan.reader.Body<wire::GraphKernel>(form);
  bool has_priority = node_priorities_;
  node->priority = 0;
  for (uint32_t i = 0; i < kernel.attributes; ++i) {
    const wire::GraphAttribute attribute = plan.reader.Attribute(form, i);
    const auto id = static_cast<CUlaunchAttributeID>(attribute.id);
    // Hints for the cache, whose window is an address: without them the results are the same.
    if (id == CU_LAUNCH_ATTRIBUTE_IGNORE || id == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) {
      continue;
    }
    CUlaunchAttributeValue value;
    static_assert(sizeof(value) == sizeof(attribute.value));
    std::memcpy(&value, attribute.value, sizeof(value));
    if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
      node->priority = value.priority;
      has_priority = true;
      continue;
    }
    CUDA_RETURN_IF_ERROR(device_->cuda().cuGraphKernelNodeSetAttribute(node->handle, id, &value));
  }
  return has_priority ? SetPriority(*node, band_) : CUDA_SUCCESS;
}

CUresult Graph::SetPriority(const Node& node, const PriorityBand& band) const {
  CUlaunchAttributeValue value = {};
  value.priority = band.Map(node.priority);
  return device_->cuda().cuGraphKernelNodeSetAttribute(node.handle, CU_LAUNCH_ATTRIBUTE_PRIORITY,
                                                       &value);
}

}  // namespace gpuloom::executor
