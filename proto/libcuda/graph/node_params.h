// SPDX-License-Identifier: Apache-2.0
// From CUDA's parameter structs to ours and back, with the checks that CUDA makes when a node is
// made or changed. None of it takes the model's lock but what says so.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/graph.h"

namespace gpuloom::graph {

// Each makes *to, which owns nothing when they fail.
[[nodiscard]] CUresult ReadKernel(const CUDA_KERNEL_NODE_PARAMS_v3* from, NodeParams* to);
[[nodiscard]] CUresult ReadMemcpy(const CUDA_MEMCPY3D* from, CUcontext context, NodeParams* to);
[[nodiscard]] CUresult ReadMemset(const CUDA_MEMSET_NODE_PARAMS* from, CUcontext context,
                                  NodeParams* to);
[[nodiscard]] CUresult ReadHost(const CUDA_HOST_NODE_PARAMS* from, NodeParams* to);
[[nodiscard]] CUresult ReadEvent(CUgraphNodeType type, CUevent event, NodeParams* to);
[[nodiscard]] CUresult ReadBatch(const CUDA_BATCH_MEM_OP_NODE_PARAMS* from, NodeParams* to);
// Clones the child or, when the node is to have it itself, takes it over with the node's making; needs
// GraphLock. `parent`: the graph it is for.
[[nodiscard]] CUresult ReadChildLocked(CUgraph child, CUgraphChildGraphNodeOwnership ownership,
                                       Graph* parent, NodeParams* to);

// Any kind but child graphs, conditional nodes and those that are not offered.
[[nodiscard]] CUresult ReadParams(const CUgraphNodeParams* from, NodeParams* to);

CUDA_KERNEL_NODE_PARAMS ShowKernel(const KernelParams& kernel);
CUDA_MEMSET_NODE_PARAMS ShowMemset(const CUDA_MEMSET_NODE_PARAMS_v2& memset);

}  // namespace gpuloom::graph
