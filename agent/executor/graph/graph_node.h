// SPDX-License-Identifier: Apache-2.0
// Driver parameters for a graph's nodes, from their validated definition. Safe from any thread; the
// plan must not change meanwhile.
#pragma once

#include <vector>

#include "agent/executor/graph/graph.h"
#include "agent/executor/launch/kernel_node.h"
#include "proto/cuda/driver.h"

namespace gpuloom::executor {

// Points into the plan and into itself. The driver does not make a node cooperative if its parameters
// are packed (580.159: INVALID_VALUE), so parameters of cooperative kernels are passed one by one.
class GraphKernelParams {
 public:
  GraphKernelParams(const GraphPlan& plan, uint32_t entry, CUcontext context, const Driver& cuda);
  const CUDA_KERNEL_NODE_PARAMS_v2& value() const { return params_.value; }

 private:
  KernelNodeParams params_;
  std::vector<void*> each_;
};
CUDA_MEMCPY3D CopyNode(const GraphPlan& plan, uint32_t entry);
CUDA_MEMSET_NODE_PARAMS_v1 FillNode(const wire::GraphFill& fill);
CUstreamBatchMemOpParams Operation(const wire::GraphMemoryOperation& from);
std::vector<CUstreamBatchMemOpParams> Operations(const GraphPlan& plan,
                                                 const wire::GraphNode& node);
// Points to `operations`.
CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 BatchNode(std::vector<CUstreamBatchMemOpParams>* operations,
                                           CUcontext context);

// What a node's body makes the driver keep besides the node, each time it does, and what of it lies in device memory.
// A node without a body keeps what it has.
uint64_t KeptBytes(const wire::GraphReader& reader, const wire::GraphNode& node);
uint64_t ParamBytes(const wire::GraphReader& reader, const wire::GraphNode& node);

// FNV-1a.
inline constexpr uint64_t kHashBegin = 0xcbf29ce484222325;
uint64_t HashBytes(uint64_t hash, const void* bytes, size_t size_bytes);
// For detecting whether an update changes a kernel's attributes.
uint64_t HashAttributes(const GraphPlan& plan, const wire::GraphNode& node);
// If two definitions have the same hash, the parameters of one fit the nodes of the other.
uint64_t HashShape(const GraphPlan& plan);

}  // namespace gpuloom::executor
