// SPDX-License-Identifier: Apache-2.0
// cuGraphInstantiate*, cuGraphLaunch, cuGraphUpload, cuGraphExec*: executable graphs.
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/graph/backing.h"
#include "proto/libcuda/graph/capture.h"
#include "proto/libcuda/graph/entry.h"
#include "proto/libcuda/graph/exec.h"
#include "proto/libcuda/graph/library.h"
#include "proto/libcuda/graph/node_params.h"
#include "proto/libcuda/graph/user_object.h"

namespace gpuloom::graph {
namespace {

constexpr unsigned long long kKnownFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// Why an instantiation failed, for the versions of the call that tell the program.
struct Blame {
  CUgraphNode node = nullptr;
  CUgraphInstantiateResult why = CUDA_GRAPH_INSTANTIATE_ERROR;
};

CUresult Instantiate(CUgraphExec* out, CUgraph handle, unsigned long long flags, Blame* blame) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  if (out == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) {
    // Launches from the device are not supported.
    return (flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_ERROR_NOT_SUPPORTED;
  }
  return WithMemory([&](Shortage* shortage) {
    const Graph* graph = FindGraph(handle);
    if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // The graph of a node can only run as part of that node.
    if (graph->owner != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_RETURN_IF_ERROR(BackGraph(graph, shortage));
    if (shortage->any()) return CUDA_SUCCESS;
    Exec* exec;
    Node* culprit;
    const CUresult result = MakeExec(graph, flags, &exec, &culprit, &blame->why);
    blame->node = culprit == nullptr ? nullptr : HandleOf(culprit);
    if (result == CUDA_SUCCESS) *out = HandleOf(exec);
    return result;
  });
}

// The first version has a log, into which goes one line with the reason.
CUresult InstantiateWithLog(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log,
                            size_t log_bytes) {
  Blame blame;
  const CUresult result = Instantiate(out, graph, 0, &blame);
  if (error_node != nullptr) *error_node = blame.node;
  if (log != nullptr && log_bytes != 0) {
    const char* text = result == CUDA_SUCCESS ? ""
                       : blame.why == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                           ? "the graph's edges form a cycle"
                           : "the graph cannot be run";
    size_t i = 0;
    for (; i + 1 < log_bytes && text[i] != '\0'; ++i) log[i] = text[i];
    log[i] = '\0';
  }
  return result;
}

// Calls `submit(Exec*, const StreamRef&, Shortage*)` with the lock held, once everything that CUDA requires of the graph
// and the stream has been checked; again if it finds memory missing.
template <typename Submit>
CUresult OnStream(CUgraphExec handle, CUstream stream_handle, DefaultStream null_means,
                  Submit submit) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  StreamRef stream;
  CUDA_RETURN_IF_ERROR(ResolveStream(stream_handle, null_means, &stream));
  // Before the lock is taken, because it takes it itself. An executable graph cannot be a node of a
  // capture.
  CUDA_RETURN_IF_ERROR(RefuseInCapture(stream));
  return WithMemory([&](Shortage* shortage) {
    Exec* exec = FindExec(handle);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (exec->driver == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return submit(exec, stream, shortage);
  });
}

// `read(NodeParams*)` checks the parameters; called without the lock.
template <typename Read>
CUresult SetParams(CUgraphExec exec_handle, CUgraphNode node_handle, Read&& read) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  NodeParams params;
  CUDA_RETURN_IF_ERROR(read(&params));
  GraphLock lock;
  Exec* exec = FindExec(exec_handle);
  // Programs name steps by the nodes of the graph that was instantiated, which must still be there.
  const Node* original = FindNode(node_handle, params.type);
  Step* step = exec == nullptr || original == nullptr ? nullptr : FindStep(exec, original);
  if (step == nullptr) {
    FreeParams(&params);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (params.type == CU_GRAPH_NODE_TYPE_KERNEL) {
    // Attributes are no parameters: they stay as they are in the executable graph.
    const KernelParams& old = step->node->params.kernel;
    for (uint32_t i = 0; i < old.attribute_count; ++i) {
      const CUresult set =
          SetKernelAttribute(&params.kernel, old.attributes[i].id, old.attributes[i].value);
      if (set != CUDA_SUCCESS) {
        FreeParams(&params);
        return set;
      }
    }
  }
  return UpdateNode(exec, step->node, &params);
}

// A child graph is no parameter that could be replaced: its nodes get those of `child`, one by one.
CUresult SetChild(CUgraphExec exec_handle, CUgraphNode node_handle, CUgraph child) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  GraphLock lock;
  Exec* exec = FindExec(exec_handle);
  const Node* original = FindNode(node_handle, CU_GRAPH_NODE_TYPE_GRAPH);
  Step* step = exec == nullptr || original == nullptr ? nullptr : FindStep(exec, original);
  if (step == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Graph* graph = FindGraph(child);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return UpdateChild(exec, step->node, graph);
}

// For both versions of the struct: the older one is the later one's beginning, and what it lacks is
// zero.
template <typename Params>
CUresult SetKernel(CUgraphExec exec, CUgraphNode node, const Params* from) {
  return SetParams(exec, node, [&](NodeParams* params) {
    if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_KERNEL_NODE_PARAMS_v3 wide = {};
    memcpy(&wide, from, sizeof(*from));
    return ReadKernel(&wide, params);
  });
}

CUresult Update(CUgraphExec exec_handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  *info = {};
  info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
  CUDA_RETURN_IF_ERROR(CheckReady());
  return WithMemory([&](Shortage* shortage) {
    Exec* exec = FindExec(exec_handle);
    const Graph* graph = FindGraph(graph_handle);
    if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (graph->owner != nullptr) {
      info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;  // as in the driver, which does not look at it
      return CUDA_ERROR_INVALID_VALUE;
    }
    CUDA_RETURN_IF_ERROR(BackGraph(graph, shortage));
    return shortage->any() ? CUDA_SUCCESS : UpdateExec(exec, graph, info);
  });
}

// Only nodes that do work can be disabled.
bool CanBeDisabled(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
         type == CU_GRAPH_NODE_TYPE_MEMSET;
}

}  // namespace
}  // namespace gpuloom::graph

using namespace gpuloom;  // CUDA's functions are written in our terms
using namespace gpuloom::graph;

CUresult api::cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS* params,
                                           DefaultStream null_means) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Blame blame;
  CUresult result = Instantiate(out, graph, params->flags, &blame);
  params->hErrNode_out = blame.node;
  params->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : blame.why;
  if (result == CUDA_SUCCESS && (params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) {
    result = cuGraphUpload(*out, params->hUploadStream, null_means);
  }
  return result;
}

CUresult api::cuGraphUpload(CUgraphExec handle, CUstream stream, DefaultStream null_means) {
  return OnStream(handle, stream, null_means, [&](Exec* exec, const StreamRef&, Shortage*) {
    return DriverUpload(exec, stream, null_means);
  });
}

CUresult api::cuGraphLaunch(CUgraphExec handle, CUstream stream, DefaultStream null_means) {
  return OnStream(handle, stream, null_means,
                  [&](Exec* exec, const StreamRef& found, Shortage* shortage) {
                    // The lock is held from the check to the account, so that two launches cannot both find the
                    // memory free.
                    CUDA_RETURN_IF_ERROR(CheckLaunch(*exec));
                    CheckTurn(*exec, found, shortage);
                    if (shortage->any()) return CUDA_SUCCESS;
                    CUDA_RETURN_IF_ERROR(DriverLaunch(exec, stream, null_means));
                    NoteTurn(*exec, found);
                    ApplyLaunch(*exec);
                    return CUDA_SUCCESS;
                  });
}

extern "C" {

CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log,
                            size_t log_bytes) {
  return InstantiateWithLog(out, graph, error_node, log, log_bytes);
}
CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error_node, char* log,
                               size_t log_bytes) {
  return InstantiateWithLog(out, graph, error_node, log, log_bytes);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  // There is no stream in which to upload.
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0) return CUDA_ERROR_INVALID_VALUE;
  Blame blame;
  return Instantiate(out, graph, flags, &blame);
}

CUresult cuGraphExecDestroy(CUgraphExec handle) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  // Destroying one is a potentially unsafe call (docs/design/graphs.md), like freeing memory.
  CUDA_RETURN_IF_ERROR(CheckUnsafe());
  Exec* exec;
  bool finish;
  {
    GraphLock lock;
    exec = FindExec(handle);
    if (exec == nullptr) return CUDA_ERROR_INVALID_VALUE;
    ForgetExec(exec);
    finish = exec->driver != nullptr && HoldsObjects(exec->graph);
  }
  // Launches that still run may use the objects.
  if (finish) DriverFinish(exec);
  {
    GraphLock lock;
    FreeExec(exec);
  }
  RunDestructors();
  return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec handle, cuuint64_t* flags) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  GraphLock lock;
  const Exec* exec = FindExec(handle);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The flag asks for an action and is no property of the graph.
  *flags = exec->flags & ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
  return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* from) {
  return SetKernel(exec, node, from);
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS* from) {
  return SetKernel(exec, node, from);
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D* from, CUcontext context) {
  return SetParams(exec, node,
                   [&](NodeParams* params) { return ReadMemcpy(from, context, params); });
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS* from, CUcontext context) {
  return SetParams(exec, node,
                   [&](NodeParams* params) { return ReadMemset(from, context, params); });
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS* from) {
  return SetParams(exec, node, [&](NodeParams* params) { return ReadHost(from, params); });
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return SetChild(exec, node, child);
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return SetParams(exec, node, [&](NodeParams* params) {
    return ReadEvent(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, params);
  });
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return SetParams(exec, node, [&](NodeParams* params) {
    return ReadEvent(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, params);
  });
}
CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* from) {
  return SetParams(exec, node, [&](NodeParams* params) { return ReadBatch(from, params); });
}
CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* from) {
  if (from != nullptr && from->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    return SetChild(exec, node, from->graph.graph);
  }
  // Their memory was given at instantiation and cannot be another's.
  if (from != nullptr &&
      (from->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || from->type == CU_GRAPH_NODE_TYPE_MEM_FREE)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return SetParams(exec, node, [&](NodeParams* params) { return ReadParams(from, params); });
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error_node,
                           CUgraphExecUpdateResult* why) {
  CUgraphExecUpdateResultInfo info;
  const CUresult result = Update(exec, graph, &info);
  if (error_node != nullptr) *error_node = info.errorNode;
  if (why != nullptr) *why = info.result;
  return result;
}
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* out) {
  CUgraphExecUpdateResultInfo info;
  const CUresult result = Update(exec, graph, &info);
  if (out != nullptr) *out = info;
  return result;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec_handle, CUgraphNode handle, unsigned enabled) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  GraphLock lock;
  Exec* exec = FindExec(exec_handle);
  const Node* node = FindNode(handle);
  Step* step = exec == nullptr || node == nullptr ? nullptr : FindStep(exec, node);
  if (step == nullptr || !CanBeDisabled(node->params.type)) return CUDA_ERROR_INVALID_VALUE;
  return EnableNode(exec, step->node, enabled != 0);
}
CUresult cuGraphNodeGetEnabled(CUgraphExec exec_handle, CUgraphNode handle, unsigned* enabled) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  GraphLock lock;
  Exec* exec = FindExec(exec_handle);
  const Node* node = FindNode(handle);
  const Step* step = exec == nullptr || node == nullptr ? nullptr : FindStep(exec, node);
  if (step == nullptr || enabled == nullptr || !CanBeDisabled(node->params.type)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *enabled = step->node->enabled ? 1 : 0;
  return CUDA_SUCCESS;
}

}  // extern "C"
