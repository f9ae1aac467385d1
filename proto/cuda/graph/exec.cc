#include "proto/cuda/graph/exec.h"

#include <stdlib.h>

#include "proto/cuda/graph/handle_set.h"

namespace gpuloom::graph {
namespace {

constinit HandleSet execs;

constexpr CUgraphEdgeData kPlain = {};

// Adds steps to a definition; every failure is a lack of memory.
class Flattening {
 public:
  explicit Flattening(Definition* definition) : definition_(definition) {}

  // Roots of `graph` come after `before`. *last: the steps that nothing in the graph waits for.
  bool Add(Graph* graph, const Growing<Dependency>& before, Growing<Dependency>* last) {
    Growing<Node*> order;
    Node* culprit;
    bool room = TopologicalOrder(graph, &order, &culprit) == CUDA_SUCCESS;
    for (Node* node : order) {
      room = room && AddNode(node, before);
      if (room && node->out.count() == 0) room = last->Push({node->place, kPlain});
    }
    if (room && order.count() == 0) room = Append(before, last);
    order.Free();
    return room;
  }

 private:
  static bool Append(const Growing<Dependency>& from, Growing<Dependency>* to) {
    for (const Dependency& dependency : from) {
      if (!to->Push(dependency)) return false;
    }
    return true;
  }

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
    return Append(dependencies, &definition_->dependencies) &&
           definition_->steps.Push({node, first, static_cast<uint32_t>(dependencies.count())});
  }

  Definition* definition_;
};

// Cycles are looked for in child graphs, too. The culprit is the graph's own node.
CUresult CheckAcyclic(const Graph* graph, Node** culprit) {
  Growing<Node*> order;
  CUresult result = TopologicalOrder(graph, &order, culprit);
  order.Free();
  for (Node* node : graph->nodes) {
    if (result != CUDA_SUCCESS) break;
    if (node->params.type != CU_GRAPH_NODE_TYPE_GRAPH) continue;
    result = CheckAcyclic(node->params.child.graph, culprit);
  }
  return result;
}

Node* FindOriginal(const Graph* graph, uint64_t serial) {
  for (Node* node : graph->nodes) {
    if (node->serial == serial) return node;
    if (node->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
      Node* inner = FindOriginal(node->params.child.graph, serial);
      if (inner != nullptr) return inner;
    }
  }
  return nullptr;
}

}  // namespace

Exec* FindExec(CUgraphExec handle) {
  return execs.Contains(handle) ? reinterpret_cast<Exec*>(handle) : nullptr;
}

CUresult MakeExec(const Graph* graph, uint64_t flags, Exec** out, Node** culprit,
                  CUgraphInstantiateResult* why) {
  *culprit = nullptr;
  *why = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
  CUresult result = CheckAcyclic(graph, culprit);
  if (result != CUDA_SUCCESS) return result;
  *why = CUDA_GRAPH_INSTANTIATE_ERROR;
  auto* exec = static_cast<Exec*>(calloc(1, sizeof(Exec)));
  if (exec == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  exec->flags = flags;
  exec->graph = CloneGraph(graph);
  Growing<Dependency> none;
  Growing<Dependency> last;
  if (exec->graph == nullptr || !Flattening(&exec->definition).Add(exec->graph, none, &last) ||
      !execs.Add(exec)) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  last.Free();
  if (result == CUDA_SUCCESS) {
    exec->graph->executable = true;
    Node* copy = nullptr;
    result = DriverInstantiate(exec, &copy);
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

void ForgetExec(Exec* exec) { execs.Remove(exec); }

bool HoldsObjects(const Graph* graph) {
  if (graph->objects.count() != 0) return true;
  for (const Node* node : graph->nodes) {
    if (node->params.type == CU_GRAPH_NODE_TYPE_GRAPH && HoldsObjects(node->params.child.graph)) {
      return true;
    }
  }
  return false;
}

void FreeExec(Exec* exec) {
  if (exec->driver != nullptr) DriverDestroy(exec);
  if (exec->graph != nullptr) DestroyGraph(exec->graph);
  exec->definition.steps.Free();
  exec->definition.dependencies.Free();
  free(exec);
}

Step* FindStep(Exec* exec, const Node* original) {
  const auto count = static_cast<uint32_t>(exec->definition.steps.count());
  // Programs update nodes in the order of their making.
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t place = exec->hint + i;
    if (place >= count) place -= count;
    Step& step = exec->definition.steps[place];
    if (step.node->original_serial == original->serial) {
      exec->hint = place + 1 < count ? place + 1 : 0;
      return &step;
    }
  }
  return nullptr;
}

void ForgetAllExecs() {
  GraphLock lock;
  for (size_t i = 0; i < execs.capacity(); ++i) {
    if (execs.slot(i) == nullptr) continue;
    auto* exec = static_cast<Exec*>(const_cast<void*>(execs.slot(i)));
    if (exec->driver != nullptr) DriverDestroy(exec);
    exec->driver = nullptr;
  }
}

}  // namespace gpuloom::graph
