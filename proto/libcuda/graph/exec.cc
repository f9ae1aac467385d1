// SPDX-License-Identifier: Apache-2.0
// Making executable graphs: judging the program's graph, copying it, and flattening the copy into
// the list of steps that drivers run; and finding in the copy what the program names by nodes of
// its own graph.
#include "proto/libcuda/graph/exec.h"

#include <stdlib.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/backing.h"
#include "proto/libcuda/graph/conditional.h"
#include "proto/libcuda/graph/handle_set.h"

namespace gpuloom::graph {
namespace {

// The live ones, guarded by GraphLock.
constinit HandleSet execs;

// Adds steps to a definition; every failure is a lack of memory.
class Flattening {
 public:
  explicit Flattening(Definition* definition) : definition_(definition) {}

  // The roots of `graph` depend on `before`. *last: the steps on which nothing in the graph
  // depends; for an empty graph that is `before`, so that order passes through it. `graph` has no
  // cycle: that was checked.
  bool Add(Graph* graph, const Growing<Dependency>& before, Growing<Dependency>* last) {
    Growing<Node*> order;
    Node* culprit;
    bool room = TopologicalOrder(graph, &order, &culprit) == CUDA_SUCCESS;
    for (Node* node : order) {
      room = room && AddNode(node, before);
      if (room && node->out.count() == 0) room = last->Push({node->place, kPlainEdge});
    }
    if (room && order.count() == 0) room = Append(before, last);
    order.Free();
    return room;
  }

  // Appends the bodies of conditional steps, including those inside bodies, to the graph's own
  // steps.
  bool AddBodies() {
    // The list grows on the way: bodies of conditional nodes in bodies come behind their owners,
    // too.
    for (uint32_t i = 0; i < definition_->steps.count(); ++i) {
      bool room = true;
      ForEachInner(*definition_->steps[i].node, [&](Graph* body) {
        // The steps of a child graph are in the list already.
        if (definition_->steps[i].node->params.type != CU_GRAPH_NODE_TYPE_CONDITIONAL) return;
        const auto first = static_cast<uint32_t>(definition_->steps.count());
        Growing<Dependency> none;
        Growing<Dependency> last;
        room = room && Add(body, none, &last);
        last.Free();
        const auto end = static_cast<uint32_t>(definition_->steps.count());
        room = room && definition_->bodies.Push({i, first, end - first});
      });
      if (!room) return false;
    }
    return true;
  }

 private:
  static bool Append(const Growing<Dependency>& from, Growing<Dependency>* to) {
    for (const Dependency& dependency : from) {
      if (!to->Push(dependency)) return false;
    }
    return true;
  }

  // Topological order has given every node that this one depends on its place. A child node's place
  // is its empty step, behind those of its graph, so whoever depends on it waits for the whole
  // child.
  bool AddNode(Node* node, const Growing<Dependency>& before) {
    Growing<Dependency> mine;
    bool room = true;
    if (node->in.count() == 0) {
      room = Append(before, &mine);
    }
    for (const Edge& edge : node->in) {
      room = room && mine.Push({edge.node->place, edge.data});
    }
    if (room && node->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
      Growing<Dependency> last;
      room = Add(node->params.child.graph, mine, &last);
      room = room && AddStep(node, last);
      last.Free();
    } else {
      room = room && AddStep(node, mine);
    }
    mine.Free();
    return room;
  }

  bool AddStep(Node* node, const Growing<Dependency>& dependencies) {
    node->place = static_cast<uint32_t>(definition_->steps.count());
    const auto first = static_cast<uint32_t>(definition_->dependencies.count());
    if (IsAllocation(node->params) && !definition_->allocations.Push(node)) return false;
    return Append(dependencies, &definition_->dependencies) &&
           definition_->steps.Push({node, first, static_cast<uint32_t>(dependencies.count())});
  }

  Definition* definition_;
};

// Cycles are looked for in child graphs and bodies, too; *culprit is then a node of the inner
// graph.
CUresult CheckAcyclic(const Graph* graph, Node** culprit) {
  Growing<Node*> order;
  CUresult result = TopologicalOrder(graph, &order, culprit);
  order.Free();
  for (Node* node : graph->nodes) {
    if (result != CUDA_SUCCESS) break;
    ForEachInner(*node, [&](const Graph* inner) {
      if (result == CUDA_SUCCESS) result = CheckAcyclic(inner, culprit);
    });
  }
  return result;
}

// The node of `graph`, at any depth, that has this serial, or null. Only for errors, so it may be
// slow.
Node* FindOriginal(const Graph* graph, uint64_t serial) {
  for (Node* node : graph->nodes) {
    if (node->serial == serial) return node;
    Node* found = nullptr;
    ForEachInner(*node, [&](const Graph* inner) {
      if (found == nullptr) found = FindOriginal(inner, serial);
    });
    if (found != nullptr) return found;
  }
  return nullptr;
}

// What the graph, or the child graph or body in it, has become in the Exec's copy, or null.
const Graph* FindCopy(const Exec* exec, const Graph* original) {
  if (exec->graph->original_serial == original->serial) return exec->graph;
  if (original->owner == nullptr) return nullptr;
  const Graph* around = FindCopy(exec, original->owner->graph);
  const Node* owner = around == nullptr ? nullptr : FindInClone(around, original->owner);
  const Graph* found = nullptr;
  if (owner == nullptr) return nullptr;
  ForEachInner(*owner, [&](const Graph* inner) {
    if (inner->original_serial == original->serial) found = inner;
  });
  return found;
}

Exec* ExecAt(size_t slot) { return static_cast<Exec*>(const_cast<void*>(execs.slot(slot))); }

// Whether the driver can run the graph's conditional nodes. Handles are made before the nodes that
// use them and bodies are filled afterwards, so all of this can be judged only when the graph is
// instantiated.
CUresult CheckConditions(const Graph* graph, Node** culprit, CUgraphInstantiateResult* why) {
  if (graph->conditions.count() == 0) {
    // The conditions of a body belong to the graph that contains it.
    return HasConditions(graph) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  for (const Condition& condition : graph->conditions) {
    if (condition.used) continue;
    *why = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    return CUDA_ERROR_INVALID_VALUE;
  }
  *culprit = FindUnfitInBodies(graph);
  if (*culprit != nullptr) {
    *why = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The context was reset, and its driver's handles with it.
  if (graph->reservation == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return IsInstantiated(graph) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

}  // namespace

bool IsInstantiated(const Graph* graph) {
  for (size_t i = 0; i < execs.capacity(); ++i) {
    if (execs.slot(i) != nullptr && ExecAt(i)->graph->original_serial == graph->serial) return true;
  }
  return false;
}

Exec* FindExec(CUgraphExec handle) {
  return execs.Contains(handle) ? reinterpret_cast<Exec*>(handle) : nullptr;
}

CUresult MakeExec(const Graph* graph, uint64_t flags, Exec** out, Node** culprit,
                  CUgraphInstantiateResult* why) {
  *culprit = nullptr;
  // Each step sets the reason that it would fail for.
  *why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
  CUDA_RETURN_IF_ERROR(CheckAcyclic(graph, culprit));
  *why = CUDA_GRAPH_INSTANTIATE_ERROR;
  CUresult result = CheckConditions(graph, culprit, why);
  if (result == CUDA_SUCCESS && HasAllocations(graph) && IsInstantiated(graph)) {
    result = CUDA_ERROR_NOT_SUPPORTED;
  }
  if (result != CUDA_SUCCESS) return result;
  auto* exec = static_cast<Exec*>(calloc(1, sizeof(Exec)));
  if (exec == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  exec->flags = flags;
  exec->graph = CloneGraph(graph);
  Growing<Dependency> none;
  Growing<Dependency> last;
  Flattening flattening(&exec->definition);
  if (exec->graph == nullptr || !flattening.Add(exec->graph, none, &last) ||
      !flattening.AddBodies() || !execs.Add(exec)) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  last.Free();
  if (result == CUDA_SUCCESS) {
    // The driver builds into the reservation. It is lent for this call only, so that the copy's end
    // does not drop the program's handles.
    exec->graph->executable = true;
    exec->graph->reservation = graph->reservation;
    Node* copy = nullptr;
    result = DriverInstantiate(exec, &copy);
    exec->graph->reservation = nullptr;  // it belongs to the program's graph
    if (copy != nullptr) *culprit = FindOriginal(graph, copy->original_serial);
  }
  if (result != CUDA_SUCCESS) {
    ForgetExec(exec);
    FreeExec(exec);
    return result;
  }
  *why = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  *out = exec;
  return CUDA_SUCCESS;
}

// From here on no other thread finds it, so DriverFinish needs no lock.
void ForgetExec(Exec* exec) { execs.Remove(exec); }

bool HoldsObjects(const Graph* graph) {
  if (graph->objects.count() != 0) return true;
  for (const Node* node : graph->nodes) {
    bool inner_holds = false;
    ForEachInner(*node, [&](const Graph* inner) { inner_holds |= HoldsObjects(inner); });
    if (inner_holds) return true;
  }
  return false;
}

void FreeExec(Exec* exec) {
  ForgetTurns(*exec);
  if (exec->driver != nullptr) DriverDestroy(exec);
  if (exec->graph != nullptr) DestroyGraph(exec->graph);
  exec->definition.steps.Free();
  exec->definition.dependencies.Free();
  exec->definition.bodies.Free();
  exec->definition.allocations.Free();
  free(exec);
}

Step* FindStep(Exec* exec, const Node* original) {
  const Graph* copy = FindCopy(exec, original->graph);
  const Node* node = copy == nullptr ? nullptr : FindInClone(copy, original);
  return node == nullptr ? nullptr : &exec->definition.steps[node->place];
}

void ForgetAllExecs() {
  GraphLock lock;
  for (size_t i = 0; i < execs.capacity(); ++i) {
    if (execs.slot(i) == nullptr) continue;
    Exec* exec = ExecAt(i);
    if (exec->driver != nullptr) DriverDestroy(exec);
    // The program still has the handle and may destroy it; launching it is CONTEXT_IS_DESTROYED.
    exec->driver = nullptr;
    ForgetTurns(*exec);
  }
  ForgetReservations();
}

}  // namespace gpuloom::graph
