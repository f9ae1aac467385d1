// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/testing/graph_calls.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "agent/executor/testing/green.h"
#include "agent/executor/testing/state.h"

namespace gpuloom::executor {
namespace {

template <typename Handle>
CUresult NewGraphPart(Handle* part) {
  const MutexLock lock(S().mutex);
  *part = Make<Handle>(++S().objects);
  return S().failure;
}

// What nodes say of themselves when they are asked.
constexpr unsigned kAskedGrid = 7777;

CUresult Updated() {
  const MutexLock lock(S().mutex);
  if (S().graph_failure != CUDA_SUCCESS) return S().graph_failure;
  S().calls.push_back("update");
  return S().failure;
}

}  // namespace

void FillGraphTable(Driver* d) {
  d->cuGraphCreate = [](CUgraph* graph, unsigned) {
    ++S().live_graphs;
    return NewGraphPart(graph);
  };
  d->cuGraphDestroy = [](CUgraph) { return --S().live_graphs, CUDA_SUCCESS; };
  d->cuGraphAddEmptyNode = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t) {
    return NewGraphPart(node);
  };
  d->cuGraphAddKernelNode_v2 = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t,
                                  const CUDA_KERNEL_NODE_PARAMS_v2* params) {
    return params->gridDimX == 0 ? CUDA_ERROR_INVALID_VALUE : NewGraphPart(node);
  };
  d->cuGraphAddMemcpyNode = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t,
                               const CUDA_MEMCPY3D*, CUcontext) { return NewGraphPart(node); };
  d->cuGraphAddMemsetNode = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t,
                               const CUDA_MEMSET_NODE_PARAMS*,
                               CUcontext) { return NewGraphPart(node); };
  d->cuGraphAddEventRecordNode = [](CUgraphNode* node, CUgraph, const CUgraphNode*, size_t,
                                    CUevent) { return NewGraphPart(node); };
  d->cuGraphAddBatchMemOpNode = [](CUgraphNode* node, CUgraph graph, const CUgraphNode*, size_t,
                                   const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
    {
      const MutexLock lock(S().mutex);
      for (unsigned i = 0; i < params->count; ++i) {
        const CUdeviceptr at = params->paramArray[i].waitValue.address;
        const auto pinned = reinterpret_cast<CUdeviceptr>(PinnedMemory());
        if (at < pinned || at >= pinned + (8u << 20)) continue;  // a tenant's, which is not there
        S().graph_operations[Number(graph)].push_back(params->paramArray[i]);
      }
    }
    return NewGraphPart(node);
  };
  d->cuGraphAddDependencies_v2 = [](CUgraph, const CUgraphNode*, const CUgraphNode*,
                                    const CUgraphEdgeData*, size_t) { return CUDA_SUCCESS; };
  d->cuGraphKernelNodeSetAttribute = [](CUgraphNode, CUkernelNodeAttrID id,
                                        const CUkernelNodeAttrValue* value) {
    if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY) NotePriority(value->priority);
    return CUDA_SUCCESS;
  };
  d->cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph graph, unsigned long long) {
    ++S().live_graphs;
    const CUresult result = NewGraphPart(exec);
    const MutexLock lock(S().mutex);
    S().calls.push_back("instantiate");
    S().graph_of[Number(*exec)] = Number(graph);
    return result;
  };
  d->cuGraphExecDestroy = [](CUgraphExec exec) {
    --S().live_graphs;
    {
      const MutexLock lock(S().mutex);
      if (S().conditional.count(S().graph_of[Number(exec)]) == 0) return CUDA_SUCCESS;
    }
    return TestingSynchronising("destroy conditional graph");
  };
  d->cuStreamWriteValue32_v2 = [](CUstream stream, CUdeviceptr, cuuint32_t, unsigned) {
    return Work("write", stream);
  };
  d->cuStreamWriteValue64_v2 = [](CUstream stream, CUdeviceptr, cuuint64_t, unsigned) {
    return Work("write", stream);
  };
  d->cuGraphUpload = [](CUgraphExec, CUstream stream) { return Work("upload", stream); };
  d->cuGraphLaunch = [](CUgraphExec exec, CUstream stream) {
    if (const MutexLock lock(S().mutex); S().graph_failure != CUDA_SUCCESS) {
      return S().graph_failure;
    }
    const CUresult result = Work("graph", stream);
    const MutexLock lock(S().mutex);
    const auto& operations = S().graph_operations[S().graph_of[Number(exec)]];
    if (!operations.empty()) {
      auto program = std::make_shared<TestingProgram>();
      program->operations = operations;
      S().stream_work[Number(stream)].program = program;
    }
    return result;
  };
  d->cuGraphExecKernelNodeSetParams_v2 = [](CUgraphExec, CUgraphNode,
                                            const CUDA_KERNEL_NODE_PARAMS_v2* params) {
    return params->gridDimX == 0 ? CUDA_ERROR_INVALID_VALUE : Updated();
  };
  d->cuGraphKernelNodeGetParams_v2 = [](CUgraphNode, CUDA_KERNEL_NODE_PARAMS_v2* params) {
    *params = {};
    params->gridDimX = kAskedGrid;
    return CUDA_SUCCESS;
  };
  d->cuGraphKernelNodeSetParams_v2 = [](CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v2* params) {
    if (params->gridDimX != kAskedGrid) return CUDA_SUCCESS;  // an update's
    const MutexLock lock(S().mutex);
    S().calls.push_back("node of context " + std::to_string(Number(params->ctx)));
    return CUDA_SUCCESS;
  };
  d->cuGraphExecMemcpyNodeSetParams = [](CUgraphExec, CUgraphNode, const CUDA_MEMCPY3D*,
                                         CUcontext) { return Updated(); };
  d->cuGraphMemcpyNodeSetParams = [](CUgraphNode, const CUDA_MEMCPY3D*) { return CUDA_SUCCESS; };
  d->cuGraphExecMemsetNodeSetParams = [](CUgraphExec, CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*,
                                         CUcontext) { return Updated(); };
  d->cuGraphMemsetNodeSetParams = [](CUgraphNode, const CUDA_MEMSET_NODE_PARAMS*) {
    return CUDA_SUCCESS;
  };
  d->cuGraphExecBatchMemOpNodeSetParams =
      [](CUgraphExec, CUgraphNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS*) { return Updated(); };
  d->cuGraphEventRecordNodeSetEvent = [](CUgraphNode, CUevent) { return CUDA_SUCCESS; };
  d->cuGraphConditionalHandleCreate = [](CUgraphConditionalHandle* handle, CUgraph, CUcontext,
                                         unsigned value, unsigned flags) {
    const MutexLock lock(S().mutex);
    S().calls.push_back("condition " + std::to_string(value) + " " + std::to_string(flags));
    *handle = ++S().objects;
    return S().failure;
  };
  // The one kind that is added so.
  d->cuGraphAddNode_v2 = [](CUgraphNode* node, CUgraph graph, const CUgraphNode*,
                            const CUgraphEdgeData*, size_t, CUgraphNodeParams* params) {
    static CUgraph bodies[1024] = {};
    params->conditional.phGraph_out = bodies;
    {
      const MutexLock lock(S().mutex);
      S().conditional.insert(Number(graph));
    }
    return NewGraphPart(node);
  };
  d->cuGraphBatchMemOpNodeSetParams = [](CUgraphNode, const CUDA_BATCH_MEM_OP_NODE_PARAMS*) {
    return CUDA_SUCCESS;
  };
  d->cuGraphNodeSetEnabled = [](CUgraphExec, CUgraphNode, unsigned) { return Updated(); };
  d->cuGraphExecUpdate_v2 = [](CUgraphExec, CUgraph, CUgraphExecUpdateResultInfo*) {
    return Updated();
  };
}

}  // namespace gpuloom::executor
