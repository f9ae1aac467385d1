// SPDX-License-Identifier: Apache-2.0
// From judged definitions to the driver's graphs.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "agent/executor/graph/graph.h"
#include "agent/executor/graph/graph_node.h"
#include "agent/executor/graph/graph_waits.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {

using wire::GraphNodeKind;

Graph::~Graph() {
  const CUgraph graph = reservation_ == nullptr ? graph_ : nullptr;
  const bool retired = reservation_ != nullptr && exec_ != nullptr;
  auto destroy = [exec = exec_, graph, &cuda = device_->cuda()] {
    if (exec != nullptr) cuda.cuGraphExecDestroy(exec);
    if (graph != nullptr) cuda.cuGraphDestroy(graph);
  };
  auto done = [libraries = std::move(libraries_), records = std::move(records_), words = words_,
               host_calls = word_count_, staging = staging_, tenant = tenant_, room = room_,
               session_nodes = session_nodes_, nodes = counted_nodes_, retired,
               reservation = std::move(reservation_), charge = charge_,
               device_charge = std::move(device_charge_)] {
    if (reservation != nullptr) --reservation->users;
    *session_nodes -= nodes;
    room->graphs -= nodes != 0;
    room->nodes -= nodes;
    room->retired -= retired;
    if (words != nullptr) {
      staging->Give(tenant.get(), reinterpret_cast<uint8_t*>(words),
                    host_calls * sizeof(GraphHostWord));
    }
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

CUresult Graph::Prepare(const GraphPlan& plan) {
  reservation_ = plan.reservation;
  device_charge_ = plan.device_charge;
  // The driver has a graph for each body, empty ones too.
  const uint64_t bodies = plan.scopes.scopes().empty() ? 0 : plan.scopes.scopes().size() - 1;
  const uint64_t parts = plan.reader.nodes() + bodies;
  if (reservation_ != nullptr) {
    ++reservation_->users;
    // The driver's graph stays when this one goes.
    const uint64_t more = parts - std::min(parts, reservation_->counted_nodes);
    if (*session_nodes_ + more > kMaxSessionGraphNodes) return CUDA_ERROR_OUT_OF_MEMORY;
    reservation_->counted_nodes += more;
    *session_nodes_ += more;
  }
  if (*session_nodes_ + parts > kMaxSessionGraphNodes) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!charge_->Add(parts * kGraphNodeTakesBytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  counted_nodes_ = parts;
  *session_nodes_ += counted_nodes_;
  room_->graphs += counted_nodes_ != 0;
  room_->nodes += counted_nodes_;
  if (plan.waits_at_once > kMostGraphWaits) return CUDA_ERROR_NOT_SUPPORTED;
  waits_at_once_ = plan.waits_at_once;
  kernels_ = plan.kernels;
  prints_ = plan.prints;
  libraries_ = plan.libraries;
  const bool nodes_are_uploaded = plan.reader.nodes() >= kUploadNodes || reservation_ != nullptr;
  if ((nodes_are_uploaded || plan.host_calls != 0 || plan.memory_nodes != 0) &&
      room_->stream == nullptr) {
    CUDA_RETURN_IF_ERROR(device_->TakeStream(0, &room_->stream));
  }
  if (plan.host_calls == 0) return CUDA_SUCCESS;
  const std::vector<uint8_t> zeros(plan.host_calls * sizeof(GraphHostWord));
  words_ = reinterpret_cast<GraphHostWord*>(staging_->Copy(tenant_.get(), zeros));
  word_count_ = words_ == nullptr ? 0 : plan.host_calls;
  return words_ != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// What there is of each node, in a table.
CUresult Graph::Lay(const GraphPlan& plan) {
  nodes_.resize(plan.reader.nodes());
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const wire::GraphNode node = plan.reader.Node(i);
    nodes_[i].kind = node.kind;
    if (node.kind == GraphNodeKind::kEventRecord) {
      nodes_[i].place = static_cast<uint32_t>(records_.size());
      auto event = std::make_shared<GraphRecordEvent>(device_);
      const CUresult result =
          device_->Judge(device_->cuda().cuEventCreate(&event->event, CU_EVENT_DEFAULT));
      records_.push_back({i, plan.reader.Body<wire::GraphEvent>(node).event, std::move(event)});
      if (result != CUDA_SUCCESS) return result;
    } else if (node.kind == GraphNodeKind::kEventWait) {
      nodes_[i].place = static_cast<uint32_t>(waits_.size());
      waits_.push_back({i, plan.reader.Body<wire::GraphEvent>(node).event});
    } else if (node.kind == GraphNodeKind::kHost) {
      nodes_[i].place = static_cast<uint32_t>(host_calls_.size());
      host_calls_.push_back({i, plan.reader.Body<wire::GraphHostCall>(node).token});
    } else if (node.kind == GraphNodeKind::kMemoryOperations) {
      SetValueWaits(plan, i);
    }
  }
  return CUDA_SUCCESS;
}

void Graph::SetValueWaits(const GraphPlan& plan, uint32_t entry) {
  const wire::GraphNode node = plan.reader.Node(entry);
  const auto head = plan.reader.Body<wire::GraphMemoryOperations>(node);
  std::vector<ValueWait>& waits = value_waits_[node.index];
  if (in_flight != 0) former_waits_.insert(former_waits_.end(), waits.begin(), waits.end());
  waits.clear();
  for (uint32_t i = 0; i < head.operations; ++i) {
    const wire::GraphMemoryOperation one = plan.reader.Operation(node, i);
    const bool wide = one.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    if (!wide && one.operation != CU_STREAM_MEM_OP_WAIT_VALUE_32) continue;
    // Equal, at least equal, a bit in common: the value itself. A bit that neither has: none.
    const bool none = (one.flags & 3) == CU_STREAM_WAIT_VALUE_NOR;
    waits.push_back({wide, one.address, none ? 0 : one.value});
  }
}

const std::vector<Graph::ValueWait>& Graph::SortedValueWaits() {
  if (!sorted_value_waits_.empty()) return sorted_value_waits_;
  sorted_value_waits_ = std::move(former_waits_);
  for (const auto& [node, waits] : value_waits_) {
    sorted_value_waits_.insert(sorted_value_waits_.end(), waits.begin(), waits.end());
  }
  std::sort(sorted_value_waits_.begin(), sorted_value_waits_.end(),
            [](const ValueWait& a, const ValueWait& b) { return a.address < b.address; });
  return sorted_value_waits_;
}

bool Graph::TakeReady(uint32_t host_call) {
  const std::atomic_ref<uint32_t> ready(words_[host_call].ready);
  if (ready.load(std::memory_order_acquire) == 0) return false;
  // Not written again before `done`, which comes later.
  ready.store(0, std::memory_order_relaxed);
  return true;
}

void Graph::SetDone(uint32_t host_call) {
  std::atomic_ref<uint32_t>(words_[host_call].done).store(1, std::memory_order_release);
}

void Graph::Build(GraphPlan* plan, uint32_t flags) {
  const Driver& cuda = device_->cuda();
  // The youngest of what is called here; drivers before CUDA 12.3 lack it.
  if (cuda.cuGraphAddDependencies_v2 == nullptr) {
    plan->result = CUDA_ERROR_NOT_SUPPORTED;
    return;
  }
  plan->result = Lay(*plan);
  if (plan->result != CUDA_SUCCESS) return;
  if (reservation_ != nullptr) {
    graph_ = reservation_->graph;
    Renew(plan);
  } else {
    plan->result = cuda.cuGraphCreate(&graph_, 0);
    if (plan->result == CUDA_SUCCESS) AddAll(plan);
  }
  if (plan->result != CUDA_SUCCESS) return;
  unsigned long long driver_flags = 0;
  if ((flags & wire::kGraphUseNodePriority) != 0) {
    driver_flags |= CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  }
  plan->result = cuda.cuGraphInstantiateWithFlags(&exec_, graph_, driver_flags);
  if (plan->result == CUDA_SUCCESS && IsUploaded()) {
    plan->result = cuda.cuGraphUpload(exec_, room_->stream);
  }
}

void Graph::AddAll(GraphPlan* plan) {
  std::vector<CUgraph> graphs = {graph_};  // by scope
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const CUgraph graph = graphs[plan->scopes.ScopeOf(i)];
    const bool conditional = nodes_[i].kind == GraphNodeKind::kConditional;
    const CUresult added =
        conditional ? AddConditional(*plan, i, graph, &graphs) : AddNode(*plan, i, graph);
    if (added != CUDA_SUCCESS) return plan->Fail(added, i);
  }
  plan->result = AddEdges(*plan, graphs);
}

CUresult Graph::AddConditional(const GraphPlan& plan, uint32_t i, CUgraph graph,
                               std::vector<CUgraph>* graphs) {
  const auto asked = plan.reader.Body<wire::GraphConditional>(plan.reader.Node(i));
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = reservation_->handles[asked.condition];
  params.conditional.type = static_cast<CUgraphConditionalNodeType>(asked.kind);
  params.conditional.size = asked.bodies;
  params.conditional.ctx = device_->context();
  CUDA_RETURN_IF_ERROR(
      device_->cuda().cuGraphAddNode_v2(&nodes_[i].handle, graph, nullptr, nullptr, 0, &params));
  const CUgraph* bodies = params.conditional.phGraph_out;
  graphs->insert(graphs->end(), bodies, bodies + asked.bodies);
  return CUDA_SUCCESS;
}

CUresult Graph::AddNode(const GraphPlan& plan, uint32_t i, CUgraph graph) {
  const Driver& cuda = device_->cuda();
  const wire::GraphNode node = plan.reader.Node(i);
  CUgraphNode* handle = &nodes_[i].handle;
  switch (node.kind) {
    case GraphNodeKind::kConditional:
      break;  // AddConditional
    case GraphNodeKind::kEmpty:
    case GraphNodeKind::kEventWait:  // the whole launch waits: see Session::On(GraphLaunch)
      return cuda.cuGraphAddEmptyNode(handle, graph, nullptr, 0);
    case GraphNodeKind::kKernel: {
      const GraphKernelParams kernel(plan, i, cuda);
      CUDA_RETURN_IF_ERROR(
          cuda.cuGraphAddKernelNode_v2(handle, graph, nullptr, 0, &kernel.value()));
      nodes_[i].attributes_hash = HashAttributes(plan, node);
      return SetAttributes(plan, i, *handle);
    }
    case GraphNodeKind::kCopy: {
      const CUDA_MEMCPY3D copy = CopyNode(plan, i);
      return cuda.cuGraphAddMemcpyNode(handle, graph, nullptr, 0, &copy, device_->context());
    }
    case GraphNodeKind::kFill: {
      const auto fill = FillNode(plan.reader.Body<wire::GraphFill>(node));
      return cuda.cuGraphAddMemsetNode(handle, graph, nullptr, 0, &fill, device_->context());
    }
    case GraphNodeKind::kHost:
      return AddHostCall(&nodes_[i], graph);
    case GraphNodeKind::kEventRecord:
      return cuda.cuGraphAddEventRecordNode(handle, graph, nullptr, 0,
                                            records_[nodes_[i].place].cuda->event);
    case GraphNodeKind::kMemoryOperations: {
      auto operations = Operations(plan, node);
      const auto batch = BatchNode(&operations, device_->context());
      return cuda.cuGraphAddBatchMemOpNode(handle, graph, nullptr, 0, &batch);
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// No host node of CUDA's: its thread would run, and wait, for all tenants.
std::vector<CUstreamBatchMemOpParams> Graph::HostCallOperations(const Node& node) const {
  const GraphHostWord* word = &words_[node.place];
  const auto ready = reinterpret_cast<uint64_t>(&word->ready);
  const auto done = reinterpret_cast<uint64_t>(&word->done);
  return {Operation({CU_STREAM_MEM_OP_WRITE_VALUE_32, 0, ready, 1}),
          Operation({CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_WAIT_VALUE_EQ, done, 1}),
          Operation({CU_STREAM_MEM_OP_WRITE_VALUE_32, 0, done, 0})};
}

CUresult Graph::AddHostCall(Node* node, CUgraph graph) {
  std::vector<CUstreamBatchMemOpParams> operations = HostCallOperations(*node);
  const auto batch = BatchNode(&operations, device_->context());
  return device_->cuda().cuGraphAddBatchMemOpNode(&node->handle, graph, nullptr, 0, &batch);
}

CUresult Graph::AddEdges(const GraphPlan& plan, const std::vector<CUgraph>& graphs) {
  struct Edges {
    std::vector<CUgraphNode> from;
    std::vector<CUgraphNode> to;
    std::vector<CUgraphEdgeData> data;
  };
  std::vector<Edges> of_graph(graphs.size());
  for (uint32_t i = 0; i < plan.reader.edges(); ++i) {
    const wire::GraphEdge edge = plan.reader.Edge(i);
    Edges& edges = of_graph[plan.scopes.ScopeOf(edge.from)];
    edges.from.push_back(nodes_[edge.from].handle);
    edges.to.push_back(nodes_[edge.to].handle);
    CUgraphEdgeData data = {};
    data.from_port = edge.from_port;
    data.to_port = edge.to_port;
    data.type = edge.type;
    edges.data.push_back(data);
  }
  for (size_t i = 0; i < graphs.size(); ++i) {
    const Edges& edges = of_graph[i];
    if (edges.from.empty()) continue;
    CUDA_RETURN_IF_ERROR(device_->cuda().cuGraphAddDependencies_v2(
        graphs[i], edges.from.data(), edges.to.data(), edges.data.data(), edges.from.size()));
  }
  return OrderHostCalls(plan);
}

// The tenant runs one function at a time anyway, as CUDA does; one after the other they never keep more than
// one of the device's queues. Beside nodes that wait for values there is no such order, because a
// value may come from a function.
CUresult Graph::OrderHostCalls(const GraphPlan& plan) {
  if (waits_at_once_ != 1 || host_calls_.size() < 2) return CUDA_SUCCESS;
  std::vector<bool> ordered(host_calls_.size());
  for (uint32_t i = 0; i < plan.reader.edges(); ++i) {
    const wire::GraphEdge edge = plan.reader.Edge(i);
    const Node &from = nodes_[edge.from], &to = nodes_[edge.to];
    if (from.kind != GraphNodeKind::kHost || to.kind != GraphNodeKind::kHost) continue;
    if (to.place == from.place + 1) ordered[to.place] = true;
  }
  std::vector<CUgraphNode> from, to;
  for (size_t place = 1; place < host_calls_.size(); ++place) {
    if (ordered[place]) continue;
    from.push_back(nodes_[host_calls_[place - 1].node].handle);
    to.push_back(nodes_[host_calls_[place].node].handle);
  }
  if (from.empty()) return CUDA_SUCCESS;
  const std::vector<CUgraphEdgeData> data(from.size());
  return device_->cuda().cuGraphAddDependencies_v2(graph_, from.data(), to.data(), data.data(),
                                                   from.size());
}

CUresult Graph::SetAttributes(const GraphPlan& plan, uint32_t entry, CUgraphNode node) const {
  const wire::GraphNode form = plan.reader.Node(entry);
  const auto kernel = plan.reader.Body<wire::GraphKernel>(form);
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
    CUDA_RETURN_IF_ERROR(device_->cuda().cuGraphKernelNodeSetAttribute(node, id, &value));
  }
  return CUDA_SUCCESS;
}

void Graph::Apply(GraphPlan* plan) {
  bool whole = false;
  for (uint32_t i = 0; i < plan->reader.nodes(); ++i) {
    const CUresult applied = ApplyEntry(*plan, i, &whole);
    if (applied != CUDA_SUCCESS) return plan->Fail(applied, plan->reader.Node(i).index);
  }
  if (!whole) return;
  CUgraphExecUpdateResultInfo info = {};
  plan->result = device_->cuda().cuGraphExecUpdate_v2(exec_, graph_, &info);
}

// The graph behind the executable one gets the same parameters, so that it can be updated as a whole
// when an attribute changes: of a single node the driver lets nobody change those.
CUresult Graph::ApplyEntry(const GraphPlan& plan, uint32_t entry, bool* whole) {
  const Driver& cuda = device_->cuda();
  const wire::GraphNode form = plan.reader.Node(entry);
  Node& node = nodes_[form.index];
  CUresult result = CUDA_SUCCESS;
  if (form.body_bytes != 0) {
    switch (form.kind) {
      case GraphNodeKind::kKernel: {
        const GraphKernelParams kernel(plan, entry, cuda);
        // The graph behind stays as it was made: see Renew.
        if (reservation_ != nullptr && HashAttributes(plan, form) != node.attributes_hash) {
          return CUDA_ERROR_NOT_SUPPORTED;
        }
        result = cuda.cuGraphExecKernelNodeSetParams_v2(exec_, node.handle, &kernel.value());
        if (result != CUDA_SUCCESS) return result;
        result = cuda.cuGraphKernelNodeSetParams_v2(node.handle, &kernel.value());
        const uint64_t hash = HashAttributes(plan, form);
        if (result != CUDA_SUCCESS || hash == node.attributes_hash) break;
        node.attributes_hash = hash;
        *whole = true;
        result = SetAttributes(plan, entry, node.handle);
        break;
      }
      case GraphNodeKind::kCopy: {
        const CUDA_MEMCPY3D copy = CopyNode(plan, entry);
        result = cuda.cuGraphExecMemcpyNodeSetParams(exec_, node.handle, &copy, device_->context());
        if (result == CUDA_SUCCESS) result = cuda.cuGraphMemcpyNodeSetParams(node.handle, &copy);
        break;
      }
      case GraphNodeKind::kFill: {
        const auto fill = FillNode(plan.reader.Body<wire::GraphFill>(form));
        result = cuda.cuGraphExecMemsetNodeSetParams(exec_, node.handle, &fill, device_->context());
        if (result == CUDA_SUCCESS) result = cuda.cuGraphMemsetNodeSetParams(node.handle, &fill);
        break;
      }
      case GraphNodeKind::kMemoryOperations: {
        auto operations = Operations(plan, form);
        const auto batch = BatchNode(&operations, device_->context());
        result = cuda.cuGraphExecBatchMemOpNodeSetParams(exec_, node.handle, &batch);
        if (result == CUDA_SUCCESS) {
          result = cuda.cuGraphBatchMemOpNodeSetParams(node.handle, &batch);
        }
        break;
      }
      default:
        break;  // AdoptUpdate
    }
  }
  if (result != CUDA_SUCCESS) return result;
  const bool has_switch = form.kind == GraphNodeKind::kKernel ||
                          form.kind == GraphNodeKind::kCopy || form.kind == GraphNodeKind::kFill;
  if (!has_switch) return CUDA_SUCCESS;
  const bool enabled = (form.flags & wire::kGraphNodeDisabled) == 0;
  if (enabled == !node.disabled) return CUDA_SUCCESS;
  result = cuda.cuGraphNodeSetEnabled(exec_, node.handle, enabled ? 1 : 0);
  if (result == CUDA_SUCCESS) node.disabled = !enabled;
  return result;
}

bool Graph::ChangesAttributes(const GraphPlan& plan) const {
  for (uint32_t i = 0; i < plan.reader.nodes(); ++i) {
    const wire::GraphNode form = plan.reader.Node(i);
    if (form.kind == GraphNodeKind::kKernel && form.body_bytes != 0 &&
        HashAttributes(plan, form) != nodes_[form.index].attributes_hash) {
      return true;
    }
  }
  return false;
}

void Graph::AdoptUpdate(const GraphPlan& plan) {
  prints_ |= plan.prints;
  libraries_.insert(libraries_.end(), plan.libraries.begin(), plan.libraries.end());
  std::sort(libraries_.begin(), libraries_.end());
  libraries_.erase(std::unique(libraries_.begin(), libraries_.end()), libraries_.end());
  // The graph behind has been updated, too, and stays when this one goes.
  if (reservation_ != nullptr) reservation_->libraries = libraries_;
  for (const uint32_t i : plan.special) {
    const wire::GraphNode form = plan.reader.Node(i);
    if (plan.result != CUDA_SUCCESS && form.index == plan.failed_node) return;
    if (form.body_bytes == 0) continue;
    const uint32_t place = nodes_[form.index].place;
    if (form.kind == GraphNodeKind::kMemoryOperations) {
      SetValueWaits(plan, i);
    } else if (form.kind == GraphNodeKind::kEventRecord) {
      records_[place].event = plan.reader.Body<wire::GraphEvent>(form).event;
    } else if (form.kind == GraphNodeKind::kEventWait) {
      waits_[place].event = plan.reader.Body<wire::GraphEvent>(form).event;
    } else if (form.kind == GraphNodeKind::kHost) {
      host_calls_[place].token = plan.reader.Body<wire::GraphHostCall>(form).token;
    }
  }
}

}  // namespace gpuloom::executor
