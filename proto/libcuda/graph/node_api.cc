// SPDX-License-Identifier: Apache-2.0
// cuGraphAdd*Node, cuGraph*NodeGetParams and …SetParams: nodes of a graph that the program builds by hand.
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/graph/conditional.h"
#include "proto/libcuda/graph/entry.h"
#include "proto/libcuda/graph/library.h"
#include "proto/libcuda/graph/node_params.h"

namespace gpuloom::graph {
namespace {

// The arguments that all functions which add a node have in common. `data` null: ordinary
// dependencies.
struct NewNode {
  CUgraphNode* out;
  CUgraph graph;
  const CUgraphNode* dependencies;
  const CUgraphEdgeData* data;
  size_t count;
};

// `read(NodeParams*)` judges the parameters; it is called without the lock, because it may ask the
// executor about a kernel. So handles are looked up only afterwards: the graph may have changed
// meanwhile.
template <typename Read>
CUresult Add(const NewNode& asked, Read&& read) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  if (asked.out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeParams params;
  CUDA_RETURN_IF_ERROR(read(&params));
  GraphLock lock;
  Graph* graph = FindGraph(asked.graph);
  EdgeList before;
  CUresult result = graph == nullptr || graph->executable
                        ? CUDA_ERROR_INVALID_VALUE
                        : before.Read(graph, asked.dependencies, asked.data, asked.count);
  if (result != CUDA_SUCCESS) {
    FreeParams(&params);
    return result;
  }
  Node* node;
  result = AddNode(graph, &params, before.edges.begin(), before.edges.count(), &node);
  if (result == CUDA_SUCCESS) *asked.out = HandleOf(node);
  return result;
}

// `read(Graph*, NodeParams*)` is called with the lock: for nodes that bring graphs along, which
// must not change between the check and the node's arrival. *params need not be freed: AddNode
// takes them over.
template <typename Read>
CUresult AddLocked(const NewNode& asked, Read&& read) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  if (asked.out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphLock lock;
  Graph* graph = FindGraph(asked.graph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EdgeList before;
  CUDA_RETURN_IF_ERROR(before.Read(graph, asked.dependencies, asked.data, asked.count));
  NodeParams params;
  CUDA_RETURN_IF_ERROR(read(graph, &params));
  Node* node;
  const CUresult result =
      AddNode(graph, &params, before.edges.begin(), before.edges.count(), &node);
  if (result == CUDA_SUCCESS) *asked.out = HandleOf(node);
  return result;
}

CUresult AddChild(const NewNode& asked, CUgraph child, CUgraphChildGraphNodeOwnership ownership) {
  return AddLocked(asked, [=](Graph* graph, NodeParams* params) {
    return ReadChildLocked(child, ownership, graph, params);
  });
}

CUresult AddConditional(const NewNode& asked, CUgraphNodeParams* from) {
  // The program gets the node's own array, valid as long as the node.
  CUgraph* bodies = nullptr;
  const CUresult result = AddLocked(asked, [from, &bodies](Graph* graph, NodeParams* params) {
    const CUresult read = ReadConditional(*from, graph, params);
    if (read == CUDA_SUCCESS) bodies = reinterpret_cast<CUgraph*>(params->conditional.bodies);
    return read;
  });
  if (result == CUDA_SUCCESS) from->conditional.phGraph_out = bodies;
  return result;
}

CUresult AddAny(const NewNode& asked, CUgraphNodeParams* from) {
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The only kind, besides conditional nodes, that writes into the program's struct.
  if (from->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    CUdeviceptr address = 0;
    const CUresult result = Add(asked, [&](NodeParams* params) {
      CUDA_MEM_ALLOC_NODE_PARAMS wanted;
      CUDA_RETURN_IF_ERROR(ReadAllocation(*from, &wanted));
      CUDA_RETURN_IF_ERROR(
          MakeAllocationIn(asked.graph, asked.dependencies, asked.count, wanted, params));
      address = params->alloc.params.dptr;
      return CUDA_SUCCESS;
    });
    if (result == CUDA_SUCCESS) from->alloc.dptr = address;
    return result;
  }
  if (from->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return AddConditional(asked, from);
  if (from->type != CU_GRAPH_NODE_TYPE_GRAPH) {
    return Add(asked, [&](NodeParams* params) { return ReadParams(from, params); });
  }
  return AddChild(asked, from->graph.graph, from->graph.ownership);
}

// `show(const NodeParams&)` fills what the program gets.
template <typename Show>
CUresult Get(CUgraphNode handle, CUgraphNodeType type, const void* out, Show&& show) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphLock lock;
  const Node* node = FindNode(handle, type);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  show(node->params);
  return CUDA_SUCCESS;
}

// A kernel's attributes stay when its parameters are set.
CUresult Replace(CUgraphNode handle, NodeParams* params) {
  GraphLock lock;
  Node* node = FindNode(handle, params->type);
  if (node == nullptr) {
    FreeParams(params);
    return CUDA_ERROR_INVALID_VALUE;
  }
  // They change hands before the old parameters are freed.
  if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
    params->kernel.attributes = node->params.kernel.attributes;
    params->kernel.attribute_count = node->params.kernel.attribute_count;
    node->params.kernel.attributes = nullptr;
    node->params.kernel.attribute_count = 0;
  }
  ReplaceParams(&node->params, params);
  return CUDA_SUCCESS;
}

// Sets the parameters of a node whose kind `read` has found out.
template <typename Read>
CUresult Set(CUgraphNode handle, Read&& read) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  NodeParams params;
  const CUresult result = read(&params);
  return result == CUDA_SUCCESS ? Replace(handle, &params) : result;
}

// The first version's struct is the later ones' beginning.
CUDA_KERNEL_NODE_PARAMS_v3 Widen(const CUDA_KERNEL_NODE_PARAMS_v1& from) {
  CUDA_KERNEL_NODE_PARAMS_v3 wide = {};
  memcpy(&wide, &from, sizeof(from));
  return wide;
}
CUDA_KERNEL_NODE_PARAMS_v3 Widen(const CUDA_KERNEL_NODE_PARAMS_v2& from) {
  CUDA_KERNEL_NODE_PARAMS_v3 wide;
  static_assert(sizeof(wide) == sizeof(from));
  memcpy(&wide, &from, sizeof(from));
  return wide;
}

template <typename Params>
CUresult ReadAnyKernel(const Params* from, NodeParams* params) {
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUDA_KERNEL_NODE_PARAMS_v3 wide = Widen(*from);
  return ReadKernel(&wide, params);
}

}  // namespace
}  // namespace gpuloom::graph

using namespace gpuloom::graph;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* from) {
  return Add({out, graph, dependencies, nullptr, count},
             [&](NodeParams* params) { return ReadAnyKernel(from, params); });
}
CUresult cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS* from) {
  return Add({out, graph, dependencies, nullptr, count},
             [&](NodeParams* params) { return ReadAnyKernel(from, params); });
}
CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_KERNEL, out, [&](const NodeParams& params) {
    // The first version has no field for a kernel; a CUkernel is accepted wherever a function is.
    CUDA_KERNEL_NODE_PARAMS shown = ShowKernel(params.kernel);
    if (shown.func == nullptr) shown.func = reinterpret_cast<CUfunction>(shown.kern);
    memcpy(out, &shown, sizeof(*out));
  });
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_KERNEL, out,
             [&](const NodeParams& params) { *out = ShowKernel(params.kernel); });
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* from) {
  return Set(node, [&](NodeParams* params) { return ReadAnyKernel(from, params); });
}
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* from) {
  return Set(node, [&](NodeParams* params) { return ReadAnyKernel(from, params); });
}

CUresult cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMCPY3D* from, CUcontext context) {
  return Add({out, graph, dependencies, nullptr, count},
             [&](NodeParams* params) { return ReadMemcpy(from, context, params); });
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_MEMCPY, out,
             [&](const NodeParams& params) { *out = params.memcpy.copy; });
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* from) {
  // The call names no context: the copy gets the current one.
  return Set(node, [&](NodeParams* params) { return ReadMemcpy(from, nullptr, params); });
}

CUresult cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS* from,
                              CUcontext context) {
  return Add({out, graph, dependencies, nullptr, count},
             [&](NodeParams* params) { return ReadMemset(from, context, params); });
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_MEMSET, out,
             [&](const NodeParams& params) { *out = ShowMemset(params.memset); });
}
CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* from) {
  // As above, in the current context.
  return Set(node, [&](NodeParams* params) { return ReadMemset(from, nullptr, params); });
}

CUresult cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                            size_t count, const CUDA_HOST_NODE_PARAMS* from) {
  return Add({out, graph, dependencies, nullptr, count},
             [&](NodeParams* params) { return ReadHost(from, params); });
}
CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_HOST, out, [&](const NodeParams& params) {
    *out = {params.host.fn, params.host.userData};
  });
}
CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* from) {
  return Set(node, [&](NodeParams* params) { return ReadHost(from, params); });
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, CUgraph child) {
  return AddChild({out, graph, dependencies, nullptr, count}, child,
                  CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_GRAPH, out,
             [&](const NodeParams& params) { *out = HandleOf(params.child.graph); });
}

CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                             size_t count) {
  return Add({out, graph, dependencies, nullptr, count}, [](NodeParams* params) {
    *params = {};
    params->type = CU_GRAPH_NODE_TYPE_EMPTY;
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                   size_t count, CUevent event) {
  return Add({out, graph, dependencies, nullptr, count}, [&](NodeParams* params) {
    return ReadEvent(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, params);
  });
}
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, out,
             [&](const NodeParams& params) { *out = params.event; });
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return Set(node, [&](NodeParams* params) {
    return ReadEvent(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, params);
  });
}
CUresult cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                 size_t count, CUevent event) {
  return Add({out, graph, dependencies, nullptr, count}, [&](NodeParams* params) {
    return ReadEvent(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, params);
  });
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, out,
             [&](const NodeParams& params) { *out = params.event; });
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return Set(node, [&](NodeParams* params) {
    return ReadEvent(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, params);
  });
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                  size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS* from) {
  return Add({out, graph, dependencies, nullptr, count},
             [&](NodeParams* params) { return ReadBatch(from, params); });
}
CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
  return Get(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, out, [&](const NodeParams& params) {
    *out = {params.batch.context, params.batch.count, params.batch.operations, params.batch.flags};
  });
}
CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* from) {
  return Set(node, [&](NodeParams* params) { return ReadBatch(from, params); });
}

CUresult cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                        size_t count, CUgraphNodeParams* from) {
  return AddAny({out, graph, dependencies, nullptr, count}, from);
}
CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                           const CUgraphEdgeData* data, size_t count, CUgraphNodeParams* from) {
  return AddAny({out, graph, dependencies, data, count}, from);
}
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* from) {
  if (from != nullptr &&
      (from->type == CU_GRAPH_NODE_TYPE_GRAPH || from->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
       from->type == CU_GRAPH_NODE_TYPE_MEM_FREE)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return Set(node, [&](NodeParams* params) { return ReadParams(from, params); });
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUkernelNodeAttrID id,
                                       CUkernelNodeAttrValue* out) {
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  const CUresult found = Get(handle, CU_GRAPH_NODE_TYPE_KERNEL, out, [&](const NodeParams& params) {
    if (!IsNodeAttribute(id)) return;
    // What was never set reads as zero.
    const CUlaunchAttributeValue* value = FindKernelAttribute(params.kernel, id);
    if (value != nullptr) {
      *out = *value;
    } else {
      memset(static_cast<void*>(out), 0, sizeof(*out));
    }
    result = CUDA_SUCCESS;
  });
  return found != CUDA_SUCCESS ? found : result;
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue* value) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  GraphLock lock;
  Node* node = FindNode(handle, CU_GRAPH_NODE_TYPE_KERNEL);
  if (node == nullptr || value == nullptr || !IsNodeAttribute(id)) return CUDA_ERROR_INVALID_VALUE;
  return SetKernelAttribute(&node->params.kernel, id, *value);
}
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to_handle, CUgraphNode from_handle) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  GraphLock lock;
  Node* to = FindNode(to_handle, CU_GRAPH_NODE_TYPE_KERNEL);
  const Node* from = FindNode(from_handle, CU_GRAPH_NODE_TYPE_KERNEL);
  if (to == nullptr || from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < from->params.kernel.attribute_count; ++i) {
    // A copy, because the list grows when a node's attributes are copied to itself.
    const CUlaunchAttribute attribute = from->params.kernel.attributes[i];
    result = SetKernelAttribute(&to->params.kernel, attribute.id, attribute.value);
  }
  return result;
}

}  // extern "C"
