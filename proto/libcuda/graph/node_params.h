// SPDX-License-Identifier: Apache-2.0
// Converts CUDA's parameter structs to ours and back, with the checks that CUDA makes when a node is created or
// changed. Safe from any thread; none of it takes the model's lock, and only what says so needs it.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/graph.h"

namespace gpuloom::graph {

// Each of these makes *to, which the caller frees (FreeParams) and which owns nothing on failure.
[[nodiscard]] CUresult ReadKernel(const CUDA_KERNEL_NODE_PARAMS_v3* from, NodeParams* to);
[[nodiscard]] CUresult ReadMemcpy(const CUDA_MEMCPY3D* from, CUcontext context, NodeParams* to);
[[nodiscard]] CUresult ReadMemset(const CUDA_MEMSET_NODE_PARAMS* from, CUcontext context,
                                  NodeParams* to);
[[nodiscard]] CUresult ReadHost(const CUDA_HOST_NODE_PARAMS* from, NodeParams* to);
[[nodiscard]] CUresult ReadEvent(CUgraphNodeType type, CUevent event, NodeParams* to);
[[nodiscard]] CUresult ReadBatch(const CUDA_BATCH_MEM_OP_NODE_PARAMS* from, NodeParams* to);
// Clones the child or, if the node is to own it, takes it over when the node is made; needs GraphLock. `parent`: the
// graph it is for.
[[nodiscard]] CUresult ReadChildLocked(CUgraph child, CUgraphChildGraphNodeOwnership ownership,
                                       Graph* parent, NodeParams* to);

// Reads the request for an allocation node; MakeAllocationIn does the rest.
[[nodiscard]] CUresult ReadAllocation(const CUgraphNodeParams& from,
                                      CUDA_MEM_ALLOC_NODE_PARAMS* asked);
// Any kind but child graphs, allocation and conditional nodes, and those that are not offered.
[[nodiscard]] CUresult ReadParams(const CUgraphNodeParams* from, NodeParams* to);

CUDA_KERNEL_NODE_PARAMS ShowKernel(const KernelParams& kernel);
CUDA_MEMSET_NODE_PARAMS ShowMemset(const CUDA_MEMSET_NODE_PARAMS_v2& memset);

}  // namespace gpuloom::graph
