// SPDX-License-Identifier: Apache-2.0
#include "shim/graph/graph_block.h"

#include <stdlib.h>
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/conditional.h"
#include "shim/event/event.h"
#include "shim/image/array.h"
#include "shim/module/kernel.h"
#include "shim/process/log.h"
#include "shim/stream/host_function.h"

namespace gpuloom {
namespace {

// One end of a copy in the wire's form. Returns false if the array no longer exists: a graph holds
// handles, which the program may have destroyed since.
bool EndOf(const BoxEnd& end, wire::GraphCopyEnd* out) {
  *out = {};
  if (end.array != nullptr) {
    out->space = wire::GraphCopySpace::kArray;
    out->x_bytes = end.x_bytes;
    out->y = end.y;
    out->z = end.z;
    return FindArray(end.array, &out->array) != nullptr;
  }
  out->space = end.host ? wire::GraphCopySpace::kHost : wire::GraphCopySpace::kDevice;
  out->address = end.address;
  out->pitch_bytes = end.pitch_bytes;
  out->rows = end.rows;
  return true;
}

}  // namespace

// The graph model keeps a pointer for its driver; here it is the id itself, and null is none.
wire::ReservationId ReservationOf(const graph::Graph* graph) {
  return wire::ReservationId{
      static_cast<uint32_t>(reinterpret_cast<uintptr_t>(graph->reservation))};
}

void FreeLocalStep(LocalStep* step) {
  if (step->function != 0) ForgetHostFunction(step->function);
  if (step->staged != nullptr) FreeStaged(step->staged);
  step->function = 0;
  step->staged = nullptr;
}

void GraphBlock::Free() {
  nodes_.Free();
  free(bodies_);
  free(data_);
  bodies_ = data_ = nullptr;
}

// Failures are noted and reported by Assemble, so that those who append need not check.
void GraphBlock::Append(const void* bytes, uint64_t size_bytes) {
  if (bodies_bytes_ + size_bytes > bodies_capacity_) {
    uint64_t capacity = bodies_capacity_ == 0 ? 4096 : bodies_capacity_ * 2;
    while (capacity < bodies_bytes_ + size_bytes) capacity *= 2;
    void* grown = realloc(bodies_, capacity);
    if (grown == nullptr) {
      no_room_ = true;
      return;
    }
    bodies_ = static_cast<uint8_t*>(grown);
    bodies_capacity_ = capacity;
  }
  if (size_bytes != 0) memcpy(bodies_ + bodies_bytes_, bytes, size_bytes);
  bodies_bytes_ += size_bytes;
  // The block's size is limited by Assemble, and with it this number.
  nodes_[nodes_.count() - 1].node.body_bytes += static_cast<uint32_t>(size_bytes);
}

CUresult GraphBlock::AddNode(uint32_t index, wire::GraphNodeKind kind, uint16_t flags) {
  constexpr uint8_t kZeros[wire::kGraphBodyAlignment] = {};
  if (nodes_.count() != 0) {
    // The next body must begin aligned. The padding lies behind the last one, and is not a part of
    // it.
    const uint64_t padding = wire::RoundUpToGraphBody(bodies_bytes_) - bodies_bytes_;
    Append(kZeros, padding);
    nodes_[nodes_.count() - 1].node.body_bytes -= static_cast<uint32_t>(padding);
  }
  return nodes_.Push({{index, kind, flags, 0, 0}, bodies_bytes_}) ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_OUT_OF_MEMORY;
}

// The parameters were packed when the node was made or changed; what is looked up anew is the
// kernel, whose library may have been reset since.
CUresult GraphBlock::AddKernel(const graph::KernelParams& params, uint32_t index, uint16_t flags) {
  Kernel* kernel = FindKernel(params.handle());
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUDA_RETURN_IF_ERROR(RefreshKernel(kernel));
  CUDA_RETURN_IF_ERROR(AddNode(index, wire::GraphNodeKind::kKernel, flags));
  // The size of clusters that the program gave its kernel goes with every launch (kernel.h).
  wire::LaunchAttributes own = {};
  if (!kernel->cluster_is_fixed &&
      graph::FindKernelAttribute(params, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) == nullptr) {
    AddKernelCluster(*kernel, &own);
  }
  const uint32_t attribute_count = params.attribute_count + (own.set != 0 ? 1 : 0);
  // The first is a kernel whose layout is not the one for which the parameters were packed.
  if (params.param_bytes != kernel->param_bytes || attribute_count > wire::kMaxGraphAttributes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Append(wire::GraphKernel{IdOf(kernel),
                           {params.grid[0], params.grid[1], params.grid[2]},
                           {params.block[0], params.block[1], params.block[2]},
                           params.dynamic_shared_bytes,
                           attribute_count,
                           params.param_bytes});
  for (uint32_t i = 0; i < params.attribute_count; ++i) {
    wire::GraphAttribute attribute = {};
    attribute.id = params.attributes[i].id;
    static_assert(sizeof(attribute.value) == sizeof(params.attributes[i].value));
    memcpy(attribute.value, &params.attributes[i].value, sizeof(attribute.value));
    Append(attribute);
  }
  if (own.set != 0) {
    wire::GraphAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    memcpy(attribute.value, own.cluster, sizeof(own.cluster));
    Append(attribute);
  }
  Append(params.packed, params.param_bytes);
  return CUDA_SUCCESS;
}

CUresult GraphBlock::AddCopy(const Box& box, uint32_t index, uint16_t flags) {
  wire::GraphCopy copy = {{}, {}, box.width_bytes, box.height, box.depth};
  if (!EndOf(box.to, &copy.to) || !EndOf(box.from, &copy.from)) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(AddNode(index, wire::GraphNodeKind::kCopy, flags));
  Append(copy);
  return CUDA_SUCCESS;
}

// The function stays kept, as a launch may run it any number of times; it is forgotten with the
// step.
CUresult GraphBlock::AddHost(CUhostFn function, void* data, uint32_t index, LocalStep* local) {
  KeptHostFunction kept;
  kept.function = function;
  kept.data = data;
  kept.stays = true;
  local->function = KeepHostFunction(kept);
  if (local->function == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = AddNode(index, wire::GraphNodeKind::kHost, 0);
  if (result == CUDA_SUCCESS) Append(wire::GraphHostCall{local->function});
  return result;
}

// What memory a side is in may have changed since the node was made, so it is judged here.
CUresult GraphBlock::AddMemcpy(const graph::NodeParams& params, uint32_t first, uint16_t flags,
                               LocalStep* local) {
  Box box;
  CUDA_RETURN_IF_ERROR(ReadBox(params.memcpy.copy, &box));
  local->form = StepForm::kPlain;
  if (box.from.pageable || box.to.pageable) {
    local->form = !box.to.pageable     ? StepForm::kStageIn
                  : !box.from.pageable ? StepForm::kStageOut
                                       : StepForm::kHostCopy;
    CUDA_RETURN_IF_ERROR(MakeStaged(&box, &local->staged));
  }
  switch (local->form) {
    case StepForm::kHostCopy:
      return AddHost(&RunStaged, local->staged, first, local);
    case StepForm::kStageIn:
      CUDA_RETURN_IF_ERROR(AddHost(&RunStaged, local->staged, first, local));
      return AddCopy(box, first + 1, flags);
    case StepForm::kStageOut:
      CUDA_RETURN_IF_ERROR(AddCopy(box, first, flags));
      return AddHost(&RunStaged, local->staged, first + 1, local);
    default:
      return AddCopy(box, first, flags);
  }
}

CUresult GraphBlock::AddBatch(const graph::BatchMemOpParams& batch, uint32_t index) {
  CUDA_RETURN_IF_ERROR(AddNode(index, wire::GraphNodeKind::kMemoryOperations, 0));
  Append(wire::GraphMemoryOperations{batch.count, 0});
  for (uint32_t i = 0; i < batch.count; ++i) {
    const CUstreamBatchMemOpParams& from = batch.operations[i];
    wire::GraphMemoryOperation operation = {};
    operation.operation = from.operation;
    switch (from.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        operation.flags = from.waitValue.flags;
        operation.address = from.waitValue.address;
        // The 32-bit forms leave the upper half undefined.
        operation.value = from.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ? from.waitValue.value
                                                                           : from.waitValue.value64;
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        operation.flags = from.writeValue.flags;
        operation.address = from.writeValue.address;
        operation.value = from.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32
                              ? from.writeValue.value
                              : from.writeValue.value64;
        break;
      case CU_STREAM_MEM_OP_BARRIER:
        operation.flags = from.memoryBarrier.flags;
        break;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    Append(operation);
  }
  return CUDA_SUCCESS;
}

// The bodies' steps come behind all others; the node says only how many steps each body has.
CUresult GraphBlock::AddConditional(const graph::Exec& exec, const graph::ConditionalParams& params,
                                    uint32_t first_body, LocalStep* local) {
  *local = {};
  local->first = static_cast<uint32_t>(nodes_.count());
  const graph::Condition* condition = graph::FindCondition(exec.graph, params.handle);
  if (condition == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(AddNode(local->first, wire::GraphNodeKind::kConditional, 0));
  Append(wire::GraphConditional{ReservationOf(exec.graph),
                                static_cast<uint32_t>(condition - exec.graph->conditions.begin()),
                                static_cast<uint32_t>(params.kind), params.count});
  // In a body, each step is exactly one node.
  for (uint32_t i = 0; i < params.count; ++i) Append(exec.definition.bodies[first_body + i].count);
  return CUDA_SUCCESS;
}

CUresult GraphBlock::AddStep(const graph::NodeParams& params, uint32_t first, uint16_t flags,
                             LocalStep* local) {
  *local = {};
  local->first = first;
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return AddKernel(params.kernel, first, flags);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return AddMemcpy(params, first, flags, local);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUresult result = AddNode(first, wire::GraphNodeKind::kFill, flags);
      const CUDA_MEMSET_NODE_PARAMS_v2& fill = params.memset;
      if (result == CUDA_SUCCESS) {
        Append(wire::GraphFill{fill.dst, fill.pitch, fill.width, fill.height, fill.value,
                               fill.elementSize});
      }
      return result;
    }
    case CU_GRAPH_NODE_TYPE_HOST:
      local->form = StepForm::kHost;
      return AddHost(params.host.fn, params.host.userData, first, local);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT: {
      const Event* event = FindEvent(params.event);
      if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      const CUresult result =
          AddNode(first,
                  params.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? wire::GraphNodeKind::kEventRecord
                                                                 : wire::GraphNodeKind::kEventWait,
                  0);
      if (result == CUDA_SUCCESS) Append(wire::GraphEvent{IdOf(event)});
      return result;
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return AddBatch(params.batch, first);
    // The memory exists all the time: see proto/libcuda/graph/allocation.h.
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return AddNode(first, wire::GraphNodeKind::kEmpty, 0);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// The head, all nodes, all edges, all bodies: one piece of memory, in the order in which the
// executor reads it.
CUresult GraphBlock::Assemble(const Growing<wire::GraphEdge>& edges) {
  const auto nodes = static_cast<uint32_t>(nodes_.count());
  const auto edge_count = static_cast<uint32_t>(edges.count());
  const uint64_t bodies = wire::RoundUpToGraphBody(wire::GraphBodiesOffset(nodes, edge_count));
  size_bytes_ = bodies + bodies_bytes_;
  if (no_room_) return CUDA_ERROR_OUT_OF_MEMORY;
  if (nodes > wire::kMaxGraphNodes || edge_count > wire::kMaxGraphEdges ||
      size_bytes_ > wire::kMaxGraphBytes) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // Zeroed, because the gap in front of the bodies is sent, too.
  data_ = static_cast<uint8_t*>(calloc(1, size_bytes_));
  if (data_ == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const wire::GraphHead head = {nodes, edge_count, size_bytes_};
  memcpy(data_, &head, sizeof(head));
  uint8_t* to = data_ + sizeof(head);
  for (PendingNode& pending : nodes_) {
    if (pending.node.body_bytes != 0) {
      pending.node.body_offset = static_cast<uint32_t>(bodies + pending.body_offset);
    }
    memcpy(to, &pending.node, sizeof(pending.node));
    to += sizeof(pending.node);
  }
  if (edge_count != 0) memcpy(to, edges.begin(), edge_count * sizeof(wire::GraphEdge));
  if (bodies_bytes_ != 0) memcpy(data_ + bodies, bodies_, bodies_bytes_);
  return CUDA_SUCCESS;
}

// Steps are in an order in which each comes after those on which it depends, so their nodes'
// numbers are known when an edge is made.
CUresult GraphBlock::MakeDefinition(const graph::Exec& exec, Growing<LocalStep>* steps,
                                    const graph::Step** culprit) {
  Growing<wire::GraphEdge> edges;
  CUresult result = CUDA_SUCCESS;
  // The first steps are the graph's own; the rest belongs to bodies of conditional nodes, which the
  // device runs without the host.
  const auto own = exec.definition.bodies.count() == 0 ? exec.definition.steps.count()
                                                       : exec.definition.bodies[0].first;
  uint32_t next_body = 0;
  for (const graph::Step& step : exec.definition.steps) {
    LocalStep local;
    const graph::NodeParams& params = step.node->params;
    if (params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      result = AddConditional(exec, params.conditional, next_body, &local);
      next_body += params.conditional.count;
    } else {
      result = AddStep(params, static_cast<uint32_t>(nodes_.count()), 0, &local);
    }
    if (result == CUDA_SUCCESS && steps->count() >= own && local.function != 0) {
      Log(LogLevel::kWarn,
          "cuda: a conditional node's body copies pageable memory, which needs the host: use "
          "memory from cuMemAllocHost");
      result = CUDA_ERROR_NOT_SUPPORTED;
    }
    // Kept even if it failed: what it holds is freed with the others.
    if (!steps->Push(local)) {
      FreeLocalStep(&local);
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
      *culprit = &step;
      break;
    }
    for (uint32_t i = 0; i < step.dependency_count; ++i) {
      const graph::Dependency& dependency = exec.definition.dependencies[step.first_dependency + i];
      const CUgraphEdgeData& data = dependency.data;
      // From the last node of the one step to the first of the other.
      if (!edges.Push({(*steps)[dependency.step].last(),
                       local.first,
                       data.from_port,
                       data.to_port,
                       data.type,
                       {}})) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
      }
    }
    // The two nodes of a staged copy.
    if (local.last() != local.first && !edges.Push({local.first, local.last(), 0, 0, 0, {}})) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) break;
  }
  if (result == CUDA_SUCCESS) result = Assemble(edges);
  edges.Free();
  return result;
}

// The changed steps only, each in its old place. A number of nodes cannot change: CUDA's updates
// change parameters, not the graph.
CUresult GraphBlock::MakeUpdate(const Growing<LocalStep>& steps, const graph::StepChange* changes,
                                uint32_t count, Growing<LocalStep>* replaced, uint32_t* failed) {
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < count; ++i) {
    const LocalStep& old = steps[changes[i].place];
    LocalStep local;
    result = AddStep(*changes[i].params, old.first,
                     changes[i].enabled ? 0 : wire::kGraphNodeDisabled, &local);
    if (!replaced->Push(local)) {
      FreeLocalStep(&local);
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    // Another kind of memory would need another number of nodes.
    if (result == CUDA_SUCCESS && local.form != old.form) result = CUDA_ERROR_NOT_SUPPORTED;
    // A host function cannot be skipped.
    if (result == CUDA_SUCCESS && local.function != 0 && !changes[i].enabled) {
      result = CUDA_ERROR_NOT_SUPPORTED;
    }
    if (result != CUDA_SUCCESS) *failed = i;
  }
  const Growing<wire::GraphEdge> none;
  return result == CUDA_SUCCESS ? Assemble(none) : result;
}

}  // namespace gpuloom
