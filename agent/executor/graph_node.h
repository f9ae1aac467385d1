// A graph's nodes as the driver wants them, from their judged definition. Safe from any thread; a
// plan must not change meanwhile.
#pragma once

#include <vector>

#include "agent/executor/graph.h"

namespace gpuloom::executor {

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

CUDA_MEMCPY3D CopyNode(const GraphPlan& plan, uint32_t entry);
CUDA_MEMSET_NODE_PARAMS_v1 FillNode(const wire::GraphFill& fill);
CUstreamBatchMemOpParams Operation(const wire::GraphMemoryOperation& from);
std::vector<CUstreamBatchMemOpParams> Operations(const GraphPlan& plan,
                                                 const wire::GraphNode& node);
// Points to `operations`.
CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 BatchNode(std::vector<CUstreamBatchMemOpParams>* operations,
                                           CUcontext context);

// FNV-1a.
inline constexpr uint64_t kHashBegin = 0xcbf29ce484222325;
uint64_t HashBytes(uint64_t hash, const void* bytes, size_t size_bytes);
// Tells whether an update changes a kernel's attributes.
uint64_t HashAttributes(const GraphPlan& plan, const wire::GraphNode& node);
// Of two definitions with the same one, one's parameters fit the nodes of the other.
uint64_t HashShape(const GraphPlan& plan);

}  // namespace gpuloom::executor
