// SPDX-License-Identifier: Apache-2.0
// cuGraph*: graphs as a whole, their edges, what they hold.
#include <limits.h>
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/graph/conditional.h"
#include "proto/libcuda/graph/dot.h"
#include "proto/libcuda/graph/entry.h"
#include "proto/libcuda/graph/library.h"
#include "proto/libcuda/graph/user_object.h"

namespace gpuloom::graph {
namespace {

// An ordinary dependency. CUDA's first versions of the queries know no others, and return
// LOSSY_QUERY where there are some.
bool IsPlain(const CUgraphEdgeData& data) { return memcmp(&data, &kPlainEdge, sizeof(data)) == 0; }

// Fills up to *count handles and sets what is left to null; without an array only counts. *count
// becomes the number of handles filled in, or that there are; where the array is too short it stays
// as it is.
template <typename HandleAt>
CUresult ShowNodes(size_t have, HandleAt&& handle_at, CUgraphNode* out, size_t* count) {
  if (count == nullptr || (out != nullptr && *count == 0)) return CUDA_ERROR_INVALID_VALUE;
  if (out != nullptr) {
    for (size_t i = 0; i < *count; ++i) out[i] = i < have ? handle_at(i) : nullptr;
    if (*count < have) return CUDA_SUCCESS;
  }
  *count = have;
  return CUDA_SUCCESS;
}

// The nodes at the other ends of one node's edges. `data` null: the first version of the query.
CUresult ShowEnds(const Growing<Edge>& edges, CUgraphNode* out, CUgraphEdgeData* data,
                  size_t* count) {
  if (count == nullptr || (out != nullptr && *count == 0) || (data != nullptr && out == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (out != nullptr && data == nullptr) {
    for (const Edge& edge : edges) {
      if (!IsPlain(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
    }
  }
  if (data != nullptr) {
    for (size_t i = 0; i < *count; ++i) data[i] = i < edges.count() ? edges[i].data : kPlainEdge;
  }
  return ShowNodes(
      edges.count(), [&](size_t i) { return HandleOf(edges[i].node); }, out, count);
}

// All edges of a graph, by the rules of ShowNodes with two arrays, or three.
CUresult ShowEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data,
                   size_t* count) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  if (count == nullptr || (from == nullptr) != (to == nullptr) ||
      (data != nullptr && from == nullptr) || (from != nullptr && *count == 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  GraphLock lock;
  const Graph* graph = FindGraph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t have = 0;
  for (Node* node : graph->nodes) {
    for (const Edge& edge : node->out) {
      if (from != nullptr) {
        if (data == nullptr && !IsPlain(edge.data)) return CUDA_ERROR_LOSSY_QUERY;
        if (have < *count) {
          from[have] = HandleOf(node);
          to[have] = HandleOf(edge.node);
          if (data != nullptr) data[have] = edge.data;
        }
      }
      ++have;
    }
  }
  if (from != nullptr) {
    for (size_t i = have; i < *count; ++i) {
      from[i] = to[i] = nullptr;
      if (data != nullptr) data[i] = kPlainEdge;
    }
    if (*count < have) return CUDA_SUCCESS;
  }
  *count = have;
  return CUDA_SUCCESS;
}

CUresult ShowDependencies(CUgraphNode handle, bool dependents, CUgraphNode* out,
                          CUgraphEdgeData* data, size_t* count) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  GraphLock lock;
  const Node* node = FindNode(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ShowEnds(dependents ? node->out : node->in, out, data, count);
}

// Adds or removes edges, none of them if one is refused. (The same edge twice in one call is found
// only when its first one has been changed.) Cycles are allowed here and found when the graph is
// instantiated.
CUresult ChangeEdges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                     const CUgraphEdgeData* data, size_t count, bool add) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  GraphLock lock;
  const Graph* graph = FindGraph(handle);
  if (graph == nullptr || (count != 0 && (from == nullptr || to == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    const Node* before = FindNode(from[i]);
    const Node* after = FindNode(to[i]);
    if (before == nullptr || after == nullptr || before == after || before->graph != graph ||
        after->graph != graph || HasEdge(before, after) == add ||
        (data != nullptr && !EdgeList::IsEdgeData(*before, data[i]))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // What is allocated must stay in order with what uses it.
    if (!add && (Allocates(*before) || Allocates(*after))) return CUDA_ERROR_NOT_SUPPORTED;
  }
  // Any edge may be one of those that keep two users of the same memory apart.
  if (!add && count != 0 && graph->reuses_memory) return CUDA_ERROR_NOT_SUPPORTED;
  for (size_t i = 0; i < count; ++i) {
    const CUgraphEdgeData& with = data != nullptr ? data[i] : kPlainEdge;
    CUDA_RETURN_IF_ERROR(add ? AddEdge(FindNode(from[i]), FindNode(to[i]), with)
                             : RemoveEdge(FindNode(from[i]), FindNode(to[i]), with));
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpuloom::graph

using namespace gpuloom::graph;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuGraphCreate(CUgraph* out, unsigned flags) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  if (out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  GraphLock lock;
  Graph* graph = MakeGraph();
  if (graph == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = HandleOf(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph handle) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  {
    GraphLock lock;
    Graph* graph = FindGraph(handle);
    // Graphs of nodes end with their nodes.
    if (graph == nullptr || graph->executable || graph->owner != nullptr) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (graph->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    DestroyGraph(graph);
  }
  // Without the lock: a destructor is the program's code.
  RunDestructors();
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode handle) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  {
    GraphLock lock;
    Node* node = FindNode(handle);
    if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (node->graph->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
    if (Allocates(*node) || node->graph->reuses_memory) return CUDA_ERROR_NOT_SUPPORTED;
    DestroyNode(node);
  }
  RunDestructors();
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph* out, CUgraph handle) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  GraphLock lock;
  const Graph* graph = FindGraph(handle);
  if (out == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Memory and condition handles belong to one graph; a copy of its nodes would use the same.
  if (HasAllocations(graph) || HasConditions(graph) || IsBody(graph)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  Graph* clone = CloneGraph(graph);
  if (clone == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = HandleOf(clone);
  return CUDA_SUCCESS;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* out, CUgraph handle,
                                        CUcontext context, unsigned default_value, unsigned flags) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  GraphLock lock;
  Graph* graph = FindGraph(handle);
  if (out == nullptr || graph == nullptr ||
      (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (context == nullptr || !IsContext(context)) return CUDA_ERROR_INVALID_CONTEXT;
  // A handle for a body is the top-level graph's, as CUDA allows: kernels of both may set it.
  return MakeCondition(RootOf(graph), context, default_value, flags, out);
}

CUresult cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph handle) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  GraphLock lock;
  const Graph* clone = FindGraph(handle);
  const Node* node = FindNode(original);
  if (out == nullptr || clone == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Node* found = FindInClone(clone, node);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = HandleOf(found);
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  GraphLock lock;
  const Node* node = FindNode(handle);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *type = node->params.type;
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  GraphLock lock;
  const Graph* graph = FindGraph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ShowNodes(
      graph->nodes.count(), [&](size_t i) { return HandleOf(graph->nodes[i]); }, out, count);
}

CUresult cuGraphGetRootNodes(CUgraph handle, CUgraphNode* out, size_t* count) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  GraphLock lock;
  const Graph* graph = FindGraph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  gpuloom::Growing<Node*> roots;
  bool room = true;
  for (Node* node : graph->nodes) {
    if (node->in.count() == 0) room = room && roots.Push(node);
  }
  const CUresult result =
      room ? ShowNodes(
                 roots.count(), [&](size_t i) { return HandleOf(roots[i]); }, out, count)
           : CUDA_ERROR_OUT_OF_MEMORY;
  roots.Free();
  return result;
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, size_t* count) {
  return ShowEdges(graph, from, to, nullptr, count);
}
CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* data, size_t* count) {
  return ShowEdges(graph, from, to, data, count);
}
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return ShowDependencies(node, false, out, nullptr, count);
}
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data,
                                       size_t* count) {
  return ShowDependencies(node, false, out, data, count);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* out, size_t* count) {
  return ShowDependencies(node, true, out, nullptr, count);
}
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data,
                                         size_t* count) {
  return ShowDependencies(node, true, out, data, count);
}
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                size_t count) {
  return ChangeEdges(graph, from, to, nullptr, count, true);
}
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData* data, size_t count) {
  return ChangeEdges(graph, from, to, data, count, true);
}
CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   size_t count) {
  return ChangeEdges(graph, from, to, nullptr, count, false);
}
CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData* data, size_t count) {
  return ChangeEdges(graph, from, to, data, count, false);
}

CUresult cuGraphDebugDotPrint(CUgraph handle, const char* path, unsigned flags) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphLock lock;
  const Graph* graph = FindGraph(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return PrintDot(*graph, path, flags) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult cuUserObjectCreate(CUuserObject* out, void* value, CUhostFn destroy, unsigned references,
                            unsigned flags) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  if (out == nullptr || destroy == nullptr || references == 0 || references > INT_MAX ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  GraphLock lock;
  UserObject* object = MakeUserObject(value, destroy, references);
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<CUuserObject>(object);
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned count) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  GraphLock lock;
  UserObject* object = FindUserObject(handle);
  if (object == nullptr || count == 0 || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
  object->references += count;
  return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned count) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  {
    GraphLock lock;
    UserObject* object = FindUserObject(handle);
    if (object == nullptr || count == 0 || count > INT_MAX) return CUDA_ERROR_INVALID_VALUE;
    ReleaseUserObject(object, count);
  }
  RunDestructors();
  return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph handle, CUuserObject object_handle, unsigned count,
                                 unsigned flags) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  GraphLock lock;
  Graph* graph = FindGraph(handle);
  UserObject* object = FindUserObject(object_handle);
  if (graph == nullptr || object == nullptr || count == 0 || count > INT_MAX ||
      (flags & ~unsigned{CU_GRAPH_USER_OBJECT_MOVE}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Moved references are the caller's own; otherwise the graph's are new ones.
  if (!HoldObject(graph, object, count)) return CUDA_ERROR_OUT_OF_MEMORY;
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) object->references += count;
  return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject object_handle, unsigned count) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  {
    GraphLock lock;
    Graph* graph = FindGraph(handle);
    UserObject* object = FindUserObject(object_handle);
    if (graph == nullptr || object == nullptr || count == 0 || count > INT_MAX) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    // As the driver: to give up what is not held is no error.
    DropObject(graph, object, count);
  }
  RunDestructors();
  return CUDA_SUCCESS;
}

}  // extern "C"
