// SPDX-License-Identifier: Apache-2.0
// Whether what a graph's nodes name belongs to the session. A legal graph of a program can name
// memory that is gone by now, so the results are answers, with the node that is wrong.
#include <algorithm>

#include "agent/executor/copy/host_copy.h"
#include "agent/executor/event/events.h"
#include "agent/executor/graph/conditionals.h"
#include "agent/executor/graph/graph_node.h"
#include "agent/executor/graph/graphs.h"
#include "agent/executor/image/arrays.h"
#include "agent/executor/memory/device_memory.h"
#include "agent/executor/module/libraries.h"

namespace gpuloom::executor {
namespace {

using wire::GraphNodeKind;

// The bytes from a copy's first to its last; false when they do not fit into 64 bits.
bool SpanOf(const wire::GraphCopyEnd& end, const wire::GraphCopy& copy, uint64_t* bytes) {
  *bytes = 0;
  if (copy.width_bytes == 0 || copy.height == 0 || copy.depth == 0) return true;
  // The driver refuses a distance that is too small; here it must not make the span smaller.
  const uint64_t pitch = std::max(end.pitch_bytes, copy.width_bytes);
  const uint64_t rows = std::max(end.rows, copy.height);
  uint64_t all_rows = 0;
  return !__builtin_mul_overflow(copy.depth - 1, rows, &all_rows) &&
         !__builtin_add_overflow(all_rows, copy.height - 1, &all_rows) &&
         !__builtin_mul_overflow(all_rows, pitch, bytes) &&
         !__builtin_add_overflow(*bytes, copy.width_bytes, bytes);
}

// Attributes of kernel nodes whose value is a plain number of the tenant's. Others name objects or
// memory, and would have to be translated.
bool KnownAttribute(uint32_t id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return true;
    default:
      return false;
  }
}

}  // namespace

CUresult Graphs::JudgeGraphNode(GraphPlan* plan, uint32_t entry) {
  const wire::GraphNode node = plan->reader.Node(entry);
  // The limits bound what a launch or an update costs the ring thread.
  if (!plan->Count(entry)) return CUDA_ERROR_NOT_SUPPORTED;
  // In an update: only the node's switch changes.
  if (node.body_bytes == 0) return CUDA_SUCCESS;
  plan->kept_bytes += KeptBytes(plan->reader, node);
  plan->param_bytes += ParamBytes(plan->reader, node);
  switch (node.kind) {
    case GraphNodeKind::kKernel:
      return JudgeGraphKernel(plan, entry);
    case GraphNodeKind::kCopy: {
      const auto copy = plan->reader.Body<wire::GraphCopy>(node);
      for (const wire::GraphCopyEnd* end : {&copy.to, &copy.from}) {
        uint64_t bytes = 0;
        if (end->space == wire::GraphCopySpace::kArray) {
          const ArrayEntry* array = arrays_->Find(wire::ArrayId{end->array});
          if (array == nullptr || array->array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
          if (plan->arrays.empty() || plan->arrays.back().entry != entry) {
            plan->arrays.push_back({entry});
          }
          GraphPlan::Arrays& arrays = plan->arrays.back();
          // The handle is kept with the entry: the array's id may be another array's when the graph
          // is built.
          (end == &copy.to ? arrays.to : arrays.from) = array->array;
          if (!plan->Hold(array->whole)) return CUDA_ERROR_NOT_SUPPORTED;
          continue;
        }
        if (end->space > wire::GraphCopySpace::kArray) return CUDA_ERROR_INVALID_VALUE;
        if (!SpanOf(*end, copy, &bytes)) return CUDA_ERROR_INVALID_VALUE;
        const bool owned = end->space == wire::GraphCopySpace::kHost
                               ? OwnsHost(end->address, bytes)
                               : device_memory_->OwnsDevice(end->address, bytes);
        if (!owned) return CUDA_ERROR_INVALID_VALUE;
      }
      // A body runs on the device, repeatedly, and launching it would wait for the copy.
      return IsHostCopy(copy) && plan->scopes.ScopeOf(entry) != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                                  : CUDA_SUCCESS;
    }
    case GraphNodeKind::kFill: {
      const auto fill = plan->reader.Body<wire::GraphFill>(node);
      if (fill.element_bytes != 1 && fill.element_bytes != 2 && fill.element_bytes != 4) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      // A fill spans what a copy of as many rows would.
      wire::GraphCopy rows = {};
      rows.height = fill.height;
      rows.depth = 1;
      rows.to.pitch_bytes = fill.pitch_bytes;
      uint64_t bytes = 0;
      if (__builtin_mul_overflow(fill.width, uint64_t{fill.element_bytes}, &rows.width_bytes) ||
          !SpanOf(rows.to, rows, &bytes) ||
          !(device_memory_->OwnsDevice(fill.address, bytes) || OwnsHost(fill.address, bytes))) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      return CUDA_SUCCESS;
    }
    case GraphNodeKind::kEventRecord:
    case GraphNodeKind::kEventWait:
      return events_->Find(plan->reader.Body<wire::GraphEvent>(node).event) != nullptr
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_HANDLE;
    case GraphNodeKind::kMemoryOperations:
      plan->operations += plan->reader.Operations(node);
      if (plan->operations > kMaxGraphOperations ||
          (plan->scopes.ScopeOf(entry) != 0 && RunsOnHost(plan->reader, node))) {
        return CUDA_ERROR_NOT_SUPPORTED;
      }
      return JudgeGraphOperations(*plan, node);
    case GraphNodeKind::kConditional:
      return conditions_->JudgeConditional(plan, entry);
    case GraphNodeKind::kEmpty:
    case GraphNodeKind::kHost:
      return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// The driver validates dimensions and shared memory itself. Here it is checked what the node names,
// and how many bytes of parameters the driver will read.
CUresult Graphs::JudgeGraphKernel(GraphPlan* plan, uint32_t entry) {
  const wire::GraphNode node = plan->reader.Node(entry);
  const auto request = plan->reader.Body<wire::GraphKernel>(node);
  const Kernel* kernel = libraries_->kernels().Find(request.kernel);
  if (kernel == nullptr || kernel->function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (request.param_bytes != kernel->param_bytes) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < request.attributes; ++i) {
    if (!KnownAttribute(plan->reader.Attribute(node, i).id)) return CUDA_ERROR_NOT_SUPPORTED;
  }
  plan->callees[entry] = {kernel->kernel, kernel->function};
  ++plan->kernels;
  plan->prints |= kernel->library->prints;
  return plan->Hold(kernel->library) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

// Unlike with the words of a stream's operations, a misaligned word is an error of the program's,
// as everything in a definition is.
CUresult Graphs::JudgeGraphOperations(const GraphPlan& plan, const wire::GraphNode& node) const {
  const auto head = plan.reader.Body<wire::GraphMemoryOperations>(node);
  if (head.operations == 0) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < head.operations; ++i) {
    const wire::GraphMemoryOperation operation = plan.reader.Operation(node, i);
    uint64_t bytes = 4;
    switch (operation.operation) {
      case CU_STREAM_MEM_OP_BARRIER:
        continue;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        bytes = 8;
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        break;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (operation.address % bytes != 0 || !(device_memory_->OwnsDevice(operation.address, bytes) ||
                                            OwnsHost(operation.address, bytes))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace gpuloom::executor
