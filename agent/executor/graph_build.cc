// From judged definitions to the driver's graphs.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "agent/executor/block.h"
#include "agent/executor/graph.h"

namespace gpuloom::executor {
namespace {

using wire::GraphNodeKind;

// A kernel node's parameters as the driver wants them. Points into the plan and into itself.
struct KernelNode {
  KernelNode(const GraphPlan& plan, uint32_t entry) {
    const wire::GraphNode node = plan.reader.Node(entry);
    const auto kernel = plan.reader.Body<wire::GraphKernel>(node);
    const std::span<const uint8_t> params = plan.reader.Params(node);
    bytes = params.size();
    extra[1] = const_cast<uint8_t*>(params.data());
    value.func = plan.functions[entry];
    value.gridDimX = kernel.grid[0];
    value.gridDimY = kernel.grid[1];
    value.gridDimZ = kernel.grid[2];
    value.blockDimX = kernel.block[0];
    value.blockDimY = kernel.block[1];
    value.blockDimZ = kernel.block[2];
    value.sharedMemBytes = kernel.dynamic_shared_bytes;
    if (bytes != 0) value.extra = extra;
  }
  KernelNode(const KernelNode&) = delete;
  KernelNode& operator=(const KernelNode&) = delete;

  size_t bytes = 0;
  void* extra[5] = {CU_LAUNCH_PARAM_BUFFER_POINTER, nullptr, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                    CU_LAUNCH_PARAM_END};
  CUDA_KERNEL_NODE_PARAMS_v2 value = {};
};

CUDA_MEMCPY3D CopyNode(const GraphPlan& plan, uint32_t entry) {
  const auto copy = plan.reader.Body<wire::GraphCopy>(plan.reader.Node(entry));
  const auto arrays = plan.arrays.find(entry);
  if (arrays == plan.arrays.end()) return DescribeBlock(copy, nullptr, nullptr);
  return DescribeBlock(copy, arrays->second.to, arrays->second.from);
}

CUDA_MEMSET_NODE_PARAMS_v1 FillNode(const wire::GraphFill& fill) {
  CUDA_MEMSET_NODE_PARAMS_v1 value = {};
  value.dst = fill.address;
  value.pitch = fill.pitch_bytes;
  value.value = fill.value;
  value.elementSize = fill.element_bytes;
  value.width = fill.width;
  value.height = fill.height;
  return value;
}

CUstreamBatchMemOpParams Operation(const wire::GraphMemoryOperation& from) {
  CUstreamBatchMemOpParams value = {};
  value.operation = static_cast<CUstreamBatchMemOpType>(from.operation);
  switch (value.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      value.waitValue.address = from.address;
      value.waitValue.value64 = from.value;
      value.waitValue.flags = from.flags;
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      value.writeValue.address = from.address;
      value.writeValue.value64 = from.value;
      value.writeValue.flags = from.flags;
      break;
    default:
      value.memoryBarrier.flags = from.flags;
  }
  return value;
}

std::vector<CUstreamBatchMemOpParams> Operations(const GraphPlan& plan,
                                                 const wire::GraphNode& node) {
  const auto head = plan.reader.Body<wire::GraphMemoryOperations>(node);
  std::vector<CUstreamBatchMemOpParams> operations;
  operations.reserve(head.operations);
  for (uint32_t i = 0; i < head.operations; ++i) {
    operations.push_back(Operation(plan.reader.Operation(node, i)));
  }
  return operations;
}

CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 BatchNode(std::vector<CUstreamBatchMemOpParams>* operations,
                                           CUcontext context) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 value = {};
  value.ctx = context;
  value.count = static_cast<unsigned>(operations->size());
  value.paramArray = operations->data();
  return value;
}

// FNV-1a: tells whether an update changes a kernel's attributes.
uint64_t HashAttributes(const GraphPlan& plan, const wire::GraphNode& node) {
  const auto kernel = plan.reader.Body<wire::GraphKernel>(node);
  uint64_t hash = 0xcbf29ce484222325;
  for (uint32_t i = 0; i < kernel.attributes; ++i) {
    const wire::GraphAttribute attribute = plan.reader.Attribute(node, i);
    uint8_t bytes[sizeof(attribute)];
    std::memcpy(bytes, &attribute, sizeof(bytes));
    for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  }
  return hash;
}

}  // namespace

Graph::~Graph() {
  *session_nodes_ -= counted_nodes_;
  // Neither waits for launches that still run; what they use goes when they are done.
  pool_->Post(
      [exec = exec_, graph = graph_, &cuda = device_->cuda()] {
        if (exec != nullptr) cuda.cuGraphExecDestroy(exec);
        if (graph != nullptr) cuda.cuGraphDestroy(graph);
      },
      [libraries = std::move(libraries_), records = std::move(records_), words = words_,
       host_calls = host_calls_.size(), staging = staging_, room = room_, nodes = counted_nodes_] {
        room->graphs -= nodes != 0;
        room->nodes -= nodes;
        if (words != nullptr) {
          staging->Give(reinterpret_cast<uint8_t*>(words), host_calls * sizeof(GraphHostWord));
        }
      });
}

CUresult Graph::Prepare(const GraphPlan& plan) {
  if (*session_nodes_ + plan.reader.nodes() > kMaxSessionGraphNodes) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  counted_nodes_ = plan.reader.nodes();
  *session_nodes_ += counted_nodes_;
  room_->graphs += counted_nodes_ != 0;
  room_->nodes += counted_nodes_;
  kernels_ = plan.kernels;
  prints_ = plan.prints;
  libraries_ = plan.libraries;
  nodes_.resize(plan.reader.nodes());
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const wire::GraphNode node = plan.reader.Node(i);
    nodes_[i].kind = node.kind;
    if (node.kind == GraphNodeKind::kEventRecord) {
      if (records_.size() == kMaxGraphRecords) return CUDA_ERROR_NOT_SUPPORTED;
      nodes_[i].place = static_cast<uint32_t>(records_.size());
      auto event = std::make_shared<GraphRecordEvent>(device_);
      const CUresult result = device_->TakeEvent(true, &event->event);
      if (result != CUDA_SUCCESS) return result;
      records_.push_back({i, plan.reader.Body<wire::GraphEvent>(node).event, std::move(event)});
    } else if (node.kind == GraphNodeKind::kEventWait) {
      nodes_[i].place = static_cast<uint32_t>(waits_.size());
      waits_.push_back({i, plan.reader.Body<wire::GraphEvent>(node).event});
    } else if (node.kind == GraphNodeKind::kHost) {
      nodes_[i].place = static_cast<uint32_t>(host_calls_.size());
      host_calls_.push_back({i, plan.reader.Body<wire::GraphHostCall>(node).token});
    } else if (node.kind == GraphNodeKind::kMemoryOperations) {
      if (value_waits_.size() == kMaxGraphMemoryNodes) return CUDA_ERROR_NOT_SUPPORTED;
      SetValueWaits(plan, i);
    }
  }
  if ((IsUploaded() || MayWait()) && room_->stream == nullptr) {
    const CUresult result = device_->TakeStream(0, &room_->stream);
    if (result != CUDA_SUCCESS) return result;
  }
  if (host_calls_.empty()) return CUDA_SUCCESS;
  if (host_calls_.size() > kMaxGraphHostCalls) return CUDA_ERROR_NOT_SUPPORTED;
  const std::vector<uint8_t> zeros(host_calls_.size() * sizeof(GraphHostWord));
  words_ = reinterpret_cast<GraphHostWord*>(staging_->Copy(zeros));
  return words_ != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void Graph::SetValueWaits(const GraphPlan& plan, uint32_t entry) {
  const wire::GraphNode node = plan.reader.Node(entry);
  const auto head = plan.reader.Body<wire::GraphMemoryOperations>(node);
  std::vector<ValueWait>& waits = value_waits_[node.index];
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
  plan->result = cuda.cuGraphCreate(&graph_, 0);
  for (uint32_t i = 0; i < nodes_.size() && plan->result == CUDA_SUCCESS; ++i) {
    const CUresult added = AddNode(*plan, i);
    if (added != CUDA_SUCCESS) plan->Fail(added, i);
  }
  if (plan->result == CUDA_SUCCESS) plan->result = AddEdges(*plan);
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

CUresult Graph::AddNode(const GraphPlan& plan, uint32_t i) {
  const Driver& cuda = device_->cuda();
  const wire::GraphNode node = plan.reader.Node(i);
  CUgraphNode* handle = &nodes_[i].handle;
  switch (node.kind) {
    case GraphNodeKind::kEmpty:
    case GraphNodeKind::kEventWait:  // the whole launch waits: see Session::On(GraphLaunch)
      return cuda.cuGraphAddEmptyNode(handle, graph_, nullptr, 0);
    case GraphNodeKind::kKernel: {
      const KernelNode kernel(plan, i);
      const CUresult added =
          cuda.cuGraphAddKernelNode_v2(handle, graph_, nullptr, 0, &kernel.value);
      if (added != CUDA_SUCCESS) return added;
      nodes_[i].attributes_hash = HashAttributes(plan, node);
      return SetAttributes(plan, i, *handle);
    }
    case GraphNodeKind::kCopy: {
      const CUDA_MEMCPY3D copy = CopyNode(plan, i);
      return cuda.cuGraphAddMemcpyNode(handle, graph_, nullptr, 0, &copy, device_->context());
    }
    case GraphNodeKind::kFill: {
      const auto fill = FillNode(plan.reader.Body<wire::GraphFill>(node));
      return cuda.cuGraphAddMemsetNode(handle, graph_, nullptr, 0, &fill, device_->context());
    }
    case GraphNodeKind::kHost:
      return AddHostCall(&nodes_[i]);
    case GraphNodeKind::kEventRecord:
      return cuda.cuGraphAddEventRecordNode(handle, graph_, nullptr, 0,
                                            records_[nodes_[i].place].cuda->event);
    case GraphNodeKind::kMemoryOperations: {
      auto operations = Operations(plan, node);
      const auto batch = BatchNode(&operations, device_->context());
      return cuda.cuGraphAddBatchMemOpNode(handle, graph_, nullptr, 0, &batch);
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// No host node of CUDA's: its thread would run, and wait, for all tenants.
CUresult Graph::AddHostCall(Node* node) {
  const GraphHostWord* word = &words_[node->place];
  const auto ready = reinterpret_cast<uint64_t>(&word->ready);
  const auto done = reinterpret_cast<uint64_t>(&word->done);
  std::vector<CUstreamBatchMemOpParams> operations = {
      Operation({CU_STREAM_MEM_OP_WRITE_VALUE_32, 0, ready, 1}),
      Operation({CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_WAIT_VALUE_EQ, done, 1}),
      Operation({CU_STREAM_MEM_OP_WRITE_VALUE_32, 0, done, 0})};
  const auto batch = BatchNode(&operations, device_->context());
  return device_->cuda().cuGraphAddBatchMemOpNode(&node->handle, graph_, nullptr, 0, &batch);
}

CUresult Graph::AddEdges(const GraphPlan& plan) {
  const uint32_t count = plan.reader.edges();
  if (count == 0) return CUDA_SUCCESS;
  std::vector<CUgraphNode> from(count);
  std::vector<CUgraphNode> to(count);
  std::vector<CUgraphEdgeData> data(count);
  for (uint32_t i = 0; i < count; ++i) {
    const wire::GraphEdge edge = plan.reader.Edge(i);
    from[i] = nodes_[edge.from].handle;
    to[i] = nodes_[edge.to].handle;
    data[i].from_port = edge.from_port;
    data[i].to_port = edge.to_port;
    data[i].type = edge.type;
  }
  return device_->cuda().cuGraphAddDependencies_v2(graph_, from.data(), to.data(), data.data(),
                                                   count);
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
    const CUresult set = device_->cuda().cuGraphKernelNodeSetAttribute(node, id, &value);
    if (set != CUDA_SUCCESS) return set;
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
        const KernelNode kernel(plan, entry);
        result = cuda.cuGraphExecKernelNodeSetParams_v2(exec_, node.handle, &kernel.value);
        if (result != CUDA_SUCCESS) return result;
        result = cuda.cuGraphKernelNodeSetParams_v2(node.handle, &kernel.value);
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

void Graph::AdoptUpdate(const GraphPlan& plan) {
  prints_ |= plan.prints;
  libraries_.insert(libraries_.end(), plan.libraries.begin(), plan.libraries.end());
  std::sort(libraries_.begin(), libraries_.end());
  libraries_.erase(std::unique(libraries_.begin(), libraries_.end()), libraries_.end());
  for (uint32_t i = 0; i < plan.reader.nodes(); ++i) {
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
