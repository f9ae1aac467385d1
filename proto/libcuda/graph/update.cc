// SPDX-License-Identifier: Apache-2.0
// New parameters for an executable graph: what may change, and what may not. An update is judged
// whole before any of it is sent, and nodes that have not changed are not sent at all.
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/exec.h"

namespace gpuloom::graph {
namespace {

// An attribute that a kernel does not have counts as zero. `size_bytes`: of the value's member that
// this attribute uses.
bool SameAttribute(const KernelParams& a, const KernelParams& b, CUlaunchAttributeID id,
                   size_t size_bytes) {
  const CUlaunchAttributeValue zero = {};
  const CUlaunchAttributeValue* left = FindKernelAttribute(a, id);
  const CUlaunchAttributeValue* right = FindKernelAttribute(b, id);
  return memcmp(left == nullptr ? &zero : left, right == nullptr ? &zero : right, size_bytes) == 0;
}

// Returns true if each end keeps its kind of memory.
bool SameEnds(const CUDA_MEMCPY3D& a, const CUDA_MEMCPY3D& b) {
  return a.srcMemoryType == b.srcMemoryType && a.dstMemoryType == b.dstMemoryType;
}

// Checks what must stay as it was at instantiation.
CUgraphExecUpdateResult CheckChange(const NodeParams& old, const NodeParams& now) {
  if (old.type != now.type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
  switch (now.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      if (!SameAttribute(old.kernel, now.kernel, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, sizeof(int))) {
        return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
      }
      return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return SameEnds(old.memcpy.copy, now.memcpy.copy)
                 ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                 : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      // A fill keeps its number of dimensions.
      return (old.memset.height == 1) == (now.memset.height == 1)
                 ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                 : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return old.batch.count == now.batch.count ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                                : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return old.alloc.params.bytesize == now.alloc.params.bytesize
                 ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                 : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    default:
      return CU_GRAPH_EXEC_UPDATE_SUCCESS;
  }
}

// Their nodes' indices are their places.
bool IsSame(const Edge& a, const Edge& b) {
  return a.node->index == b.node->index && memcmp(&a.data, &b.data, sizeof(a.data)) == 0;
}

// Node i of the one stands for node i of the other: same kind, same edges.
CUresult CheckShape(const Graph* have, const Graph* want, CUgraphExecUpdateResultInfo* info) {
  info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  if (have->nodes.count() != want->nodes.count()) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  for (uint32_t i = 0; i < have->nodes.count(); ++i) {
    have->nodes[i]->index = i;
    want->nodes[i]->index = i;
  }
  for (size_t i = 0; i < have->nodes.count(); ++i) {
    const Node* ours = have->nodes[i];
    Node* theirs = want->nodes[i];
    info->errorNode = HandleOf(theirs);
    info->errorFromNode = nullptr;
    if (ours->params.type != theirs->params.type) {
      info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    if (ours->in.count() != theirs->in.count()) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    for (size_t k = 0; k < theirs->in.count(); ++k) {
      const Edge& edge = theirs->in[k];
      // Usually they were made in the same order.
      bool there = IsSame(ours->in[k], edge);
      for (size_t own = 0; !there && own < ours->in.count(); ++own) {
        there = IsSame(ours->in[own], edge);
      }
      if (!there) {
        info->errorFromNode = HandleOf(edge.node);
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
      }
    }
  }
  info->errorNode = nullptr;
  info->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return CUDA_SUCCESS;
}

CUresult CheckChanges(const Graph* have, const Graph* want, CUgraphExecUpdateResultInfo* info);

// Kernels of another graph set other handles, of which the executable graph's nodes know nothing.
CUresult CheckBodies(const ConditionalParams& old, Node* node, CUgraphExecUpdateResultInfo* info) {
  const ConditionalParams& now = node->params.conditional;
  if (old.handle != now.handle || old.kind != now.kind || old.count != now.count) {
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    info->errorNode = HandleOf(node);
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  CUresult result = CUDA_SUCCESS;
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < old.count; ++i) {
    result = CheckChanges(old.bodies[i], now.bodies[i], info);
  }
  return result;
}

// First all is judged, then all is changed.
CUresult CheckChanges(const Graph* have, const Graph* want, CUgraphExecUpdateResultInfo* info) {
  CUresult result = CheckShape(have, want, info);
  for (size_t i = 0; result == CUDA_SUCCESS && i < have->nodes.count(); ++i) {
    const NodeParams& old = have->nodes[i]->params;
    Node* node = want->nodes[i];
    if (old.type == CU_GRAPH_NODE_TYPE_GRAPH) {
      result = CheckChanges(old.child.graph, node->params.child.graph, info);
      continue;
    }
    if (old.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
      result = CheckBodies(old.conditional, node, info);
      continue;
    }
    info->result = CheckChange(old, node->params);
    if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
      info->errorNode = HandleOf(node);
      result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
  }
  return result;
}

// Compares by bytes: values that differ only in padding count as changed, which costs an update and
// breaks nothing. `a` is the executable graph's, which no program has pointers to; what it may have
// set in `b` is packed first.
bool SameParams(const NodeParams& a, const NodeParams& b) {
  switch (a.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
      const KernelParams& x = a.kernel;
      const KernelParams& y = b.kernel;
      PackShown(y);
      return x.handle() == y.handle() && memcmp(x.grid, y.grid, sizeof(x.grid)) == 0 &&
             memcmp(x.block, y.block, sizeof(x.block)) == 0 &&
             x.dynamic_shared_bytes == y.dynamic_shared_bytes && x.param_bytes == y.param_bytes &&
             (x.param_bytes == 0 || memcmp(x.packed, y.packed, x.param_bytes) == 0) &&
             x.attribute_count == y.attribute_count &&
             (x.attribute_count == 0 ||
              memcmp(x.attributes, y.attributes, x.attribute_count * sizeof(*x.attributes)) == 0);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      // Padding may differ: then it is sent again, as it is.
      // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
      return memcmp(&a.memcpy, &b.memcpy, sizeof(a.memcpy)) == 0;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return memcmp(&a.memset, &b.memset, sizeof(a.memset)) == 0;
    case CU_GRAPH_NODE_TYPE_HOST:
      return a.host.fn == b.host.fn && a.host.userData == b.host.userData;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return a.event == b.event;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return a.batch.count == b.batch.count &&
             (a.batch.count == 0 || memcmp(a.batch.operations, b.batch.operations,
                                           a.batch.count * sizeof(*a.batch.operations)) == 0);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      // Nodes that use it get the new address, too, and the other graph may go.
      return a.alloc.memory == b.alloc.memory;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return a.free_address == b.free_address;
    default:
      return true;  // nothing that an update could change
  }
}

// Of memory nodes nothing runs: what they do is accounted here (allocation.h).
bool Runs(const NodeParams& params) {
  return params.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && params.type != CU_GRAPH_NODE_TYPE_MEM_FREE;
}

// The changes of one update: nodes of the Exec's copy with their new parameters, which it owns.
class Changes {
 public:
  ~Changes() {
    for (Change& change : changes_) FreeParams(&change.params);
    changes_.Free();
  }

  // Returns false if there is no memory.
  bool Add(Node* node, Node* from) {
    NodeParams params;
    if (!CopyParams(from->params, &params)) return false;
    return Take(node, &params, from);
  }
  // Takes ownership of `params`, even on failure.
  bool Take(Node* node, NodeParams* params, Node* from) {
    if (changes_.Push({node, from, *params})) return true;
    FreeParams(params);
    return false;
  }
  // Everything of `want` that differs from `have`, a graph of the same shape.
  bool AddAll(Graph* have, const Graph* want) {
    for (size_t i = 0; i < have->nodes.count(); ++i) {
      Node* node = have->nodes[i];
      Node* from = want->nodes[i];
      if (node->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
        if (!AddAll(node->params.child.graph, from->params.child.graph)) return false;
      } else if (node->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        for (uint32_t k = 0; k < node->params.conditional.count; ++k) {
          if (!AddAll(node->params.conditional.bodies[k], from->params.conditional.bodies[k])) {
            return false;
          }
        }
      } else if (!SameParams(node->params, from->params) && !Add(node, from)) {
        return false;
      }
    }
    return true;
  }

  // *culprit: the node whose parameters were refused, or null.
  // Sends all changes at once, and makes them in the Exec's copy once the driver has accepted all
  // of them.
  CUresult Make(Exec* exec, Node** culprit) {
    if (changes_.count() == 0) return CUDA_SUCCESS;
    if (exec->driver == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    Growing<StepChange> steps;
    Growing<Node*> sent;
    CUresult result = CUDA_SUCCESS;
    for (const Change& change : changes_) {
      if (!Runs(change.params)) continue;
      if (!steps.Push({change.node->place, &change.params, change.node->enabled}) ||
          !sent.Push(change.from)) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
      }
    }
    uint32_t failed = UINT32_MAX;
    if (result == CUDA_SUCCESS && steps.count() != 0) {
      result = DriverUpdate(exec, steps.begin(), static_cast<uint32_t>(steps.count()), &failed);
    }
    if (result != CUDA_SUCCESS && failed < sent.count()) *culprit = sent[failed];
    steps.Free();
    sent.Free();
    if (result != CUDA_SUCCESS) return result;
    for (Change& change : changes_) {
      const NodeParams old = change.node->params;
      change.node->params = change.params;
      // The destructor frees the old ones.
      change.params = old;
    }
    return CUDA_SUCCESS;
  }

 private:
  struct Change {
    Node* node;
    Node* from;
    NodeParams params;
  };
  Growing<Change> changes_;
};

}  // namespace

CUresult UpdateNode(Exec* exec, Node* node, NodeParams* params) {
  Changes changes;
  Node* culprit = nullptr;
  if (CheckChange(node->params, *params) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
    FreeParams(params);
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!changes.Take(node, params, nullptr)) return CUDA_ERROR_OUT_OF_MEMORY;
  return changes.Make(exec, &culprit);
}

CUresult UpdateChild(Exec* exec, Node* node, const Graph* graph) {
  // The executable graph does not own such memory.
  if (HasAllocations(graph)) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  CUgraphExecUpdateResultInfo info = {};
  CUDA_RETURN_IF_ERROR(CheckChanges(node->params.child.graph, graph, &info));
  Changes changes;
  Node* culprit = nullptr;
  return changes.AddAll(node->params.child.graph, graph) ? changes.Make(exec, &culprit)
                                                         : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult EnableNode(Exec* exec, Node* node, bool enabled) {
  if (node->enabled == enabled) return CUDA_SUCCESS;
  if (exec->driver == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const StepChange change = {node->place, &node->params, enabled};
  uint32_t failed;
  const CUresult result = DriverUpdate(exec, &change, 1, &failed);
  if (result == CUDA_SUCCESS) node->enabled = enabled;
  return result;
}

CUresult UpdateExec(Exec* exec, const Graph* graph, CUgraphExecUpdateResultInfo* info) {
  *info = {};
  CUDA_RETURN_IF_ERROR(CheckChanges(exec->graph, graph, info));
  Changes changes;
  Node* culprit = nullptr;
  const CUresult result =
      changes.AddAll(exec->graph, graph) ? changes.Make(exec, &culprit) : CUDA_ERROR_OUT_OF_MEMORY;
  if (result == CUDA_SUCCESS) return result;
  info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
  info->errorNode = culprit == nullptr ? nullptr : HandleOf(culprit);
  return result;
}

}  // namespace gpuloom::graph
