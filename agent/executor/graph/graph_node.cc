// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/graph/graph_node.h"

#include <algorithm>
#include <cstring>

#include "agent/executor/copy/block_copy.h"

namespace gpuloom::executor {

namespace {

bool IsCooperative(const GraphPlan& plan, const wire::GraphNode& node) {
  const auto kernel = plan.reader.Body<wire::GraphKernel>(node);
  for (uint32_t i = 0; i < kernel.attributes; ++i) {
    const wire::GraphAttribute attribute = plan.reader.Attribute(node, i);
    int32_t value = 0;
    std::memcpy(&value, attribute.value, sizeof(value));
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && value != 0) return true;
  }
  return false;
}

}  // namespace

// The parameters stay packed unless the kernel is cooperative.
GraphKernelParams::GraphKernelParams(const GraphPlan& plan, uint32_t entry, CUcontext context,
                                     const Driver& cuda)
    : params_(plan.callees[entry].kernel, context,
              plan.reader.Body<wire::GraphKernel>(plan.reader.Node(entry)),
              plan.reader.Params(plan.reader.Node(entry))) {
  const wire::GraphNode node = plan.reader.Node(entry);
  if (cuda.cuFuncGetParamInfo == nullptr || !IsCooperative(plan, node)) return;
  const auto packed = plan.reader.Params(node);
  size_t offset = 0;
  size_t size = 0;
  while (cuda.cuFuncGetParamInfo(plan.callees[entry].function, each_.size(), &offset, &size) ==
             CUDA_SUCCESS &&
         // The driver's word for where a parameter lies is not trusted beyond the buffer.
         offset + size <= packed.size()) {
    each_.push_back(const_cast<uint8_t*>(packed.data()) + offset);
  }
  params_.value.extra = nullptr;
  params_.value.kernelParams = each_.data();
}

// plan.arrays was filled in the order of entries.
CUDA_MEMCPY3D CopyNode(const GraphPlan& plan, uint32_t entry) {
  const auto copy = plan.reader.Body<wire::GraphCopy>(plan.reader.Node(entry));
  const auto arrays = std::lower_bound(
      plan.arrays.begin(), plan.arrays.end(), entry,
      [](const GraphPlan::Arrays& one, uint32_t wanted) { return one.entry < wanted; });
  if (arrays == plan.arrays.end() || arrays->entry != entry) {
    return DescribeBlock(copy, nullptr, nullptr);
  }
  return DescribeBlock(copy, arrays->to, arrays->from);
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

// A 32-bit value is in the lower half of value64, with which the union shares its beginning.
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

uint64_t KeptBytes(const wire::GraphReader& reader, const wire::GraphNode& node) {
  if (node.kind != wire::GraphNodeKind::kMemoryOperations) return node.body_bytes;
  return reader.Operations(node) * sizeof(CUstreamBatchMemOpParams);
}

uint64_t ParamBytes(const wire::GraphReader& reader, const wire::GraphNode& node) {
  return node.kind == wire::GraphNodeKind::kKernel && node.body_bytes != 0
             ? reader.Body<wire::GraphKernel>(node).param_bytes
             : 0;
}

// Over the tenant's bytes: attributes in another order or with other unused bytes count as changed,
// which costs an update of the whole graph and nothing else.
uint64_t HashAttributes(const GraphPlan& plan, const wire::GraphNode& node) {
  const auto kernel = plan.reader.Body<wire::GraphKernel>(node);
  uint64_t hash = kHashBegin;
  for (uint32_t i = 0; i < kernel.attributes; ++i) {
    const wire::GraphAttribute attribute = plan.reader.Attribute(node, i);
    hash = HashBytes(hash, &attribute, sizeof(attribute));
  }
  return hash;
}

uint64_t HashBytes(uint64_t hash, const void* bytes, size_t size_bytes) {
  const auto* at = static_cast<const uint8_t*>(bytes);
  for (size_t i = 0; i < size_bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3;
  return hash;
}

// Everything about a definition that RenewNode does not set: kinds, sections, attributes of
// kernels, conditional nodes as a whole, and edges.
uint64_t HashShape(const GraphPlan& plan) {
  uint64_t hash = kHashBegin;
  for (uint32_t i = 0; i < plan.reader.nodes(); ++i) {
    const wire::GraphNode node = plan.reader.Node(i);
    hash = HashBytes(hash, &node.kind, sizeof(node.kind));
    const uint32_t place[] = {plan.sections.of_node[i], RunsOnHost(plan.reader, node) ? 1u : 0u};
    hash = HashBytes(hash, place, sizeof(place));
    if (node.kind == wire::GraphNodeKind::kKernel) {
      const uint64_t attributes = HashAttributes(plan, node);
      hash = HashBytes(hash, &attributes, sizeof(attributes));
    } else if (node.kind == wire::GraphNodeKind::kConditional) {
      hash = HashBytes(hash, plan.block.data() + node.body_offset, node.body_bytes);
    }
  }
  for (uint32_t i = 0; i < plan.reader.edges(); ++i) {
    const wire::GraphEdge edge = plan.reader.Edge(i);
    hash = HashBytes(hash, &edge, sizeof(edge));
  }
  return hash;
}

}  // namespace gpuloom::executor
