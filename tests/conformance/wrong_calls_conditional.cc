// SPDX-License-Identifier: Apache-2.0
// Wrong calls around conditional nodes.
#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {

void WrongConditionals(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUgraph graph = nullptr, other = nullptr, clone = nullptr;
  CUgraphExec exec = nullptr, second = nullptr;
  CUgraphNode node = nullptr, added = nullptr;
  CUgraphConditionalHandle handle = 0, unused = 0, foreign = 0, spare = 0;
  if (!c.Has("cuGraphCreate", cu.cuGraphCreate(&graph, 0))) return;
  if (!c.Has("cuGraphCreate", cu.cuGraphCreate(&other, 0))) return;
  c("cuGraphConditionalHandleCreate without graph",
    [&] { return cu.cuGraphConditionalHandleCreate(&spare, nullptr, at.context, 0, 0); });
  c("cuGraphConditionalHandleCreate without context",
    [&] { return cu.cuGraphConditionalHandleCreate(&spare, graph, nullptr, 0, 0); });
  c("cuGraphConditionalHandleCreate with flag 2",
    [&] { return cu.cuGraphConditionalHandleCreate(&spare, graph, at.context, 0, 2); });
  if (!c.Has("cuGraphConditionalHandleCreate",
             cu.cuGraphConditionalHandleCreate(&handle, graph, at.context, 1,
                                               CU_GRAPH_COND_ASSIGN_DEFAULT)) ||
      !c.Has("cuGraphConditionalHandleCreate",
             cu.cuGraphConditionalHandleCreate(&foreign, other, at.context, 1, 0))) {
    return;
  }
  c("cuGraphClone of a graph with an unused handle",
    [&] { return cu.cuGraphClone(&clone, graph); });
  c("cuGraphInstantiate of a graph with an unused handle",
    [&] { return cu.cuGraphInstantiateWithFlags(&exec, graph, 0); });
  const auto asked = [&](CUgraphConditionalHandle by, CUgraphConditionalNodeType type,
                         unsigned size) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = by;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = at.context;
    return params;
  };
  const auto add = [&](CUgraph to, CUgraphNodeParams params) {
    return cu.cuGraphAddNode_v2(&added, to, nullptr, nullptr, 0, &params);
  };
  c("cuGraphAddNode of a while without body",
    [&] { return add(graph, asked(handle, CU_GRAPH_COND_TYPE_WHILE, 0)); });
  c("cuGraphAddNode of a while with two bodies",
    [&] { return add(graph, asked(handle, CU_GRAPH_COND_TYPE_WHILE, 2)); });
  c("cuGraphAddNode of an if with three bodies",
    [&] { return add(graph, asked(handle, CU_GRAPH_COND_TYPE_IF, 3)); });
  c("cuGraphAddNode of a switch without body",
    [&] { return add(graph, asked(handle, CU_GRAPH_COND_TYPE_SWITCH, 0)); });
  c("cuGraphAddNode of an unknown kind of condition",
    [&] { return add(graph, asked(handle, static_cast<CUgraphConditionalNodeType>(9), 1)); });
  c("cuGraphAddNode with a handle that is none",
    [&] { return add(graph, asked(0x12345, CU_GRAPH_COND_TYPE_IF, 1)); });
  c("cuGraphAddNode with handle 0", [&] { return add(graph, asked(0, CU_GRAPH_COND_TYPE_IF, 1)); });
  c("cuGraphAddNode of a conditional node without output", [&] {
    CUgraphNodeParams params = asked(handle, CU_GRAPH_COND_TYPE_IF, 1);
    return cu.cuGraphAddNode_v2(nullptr, graph, nullptr, nullptr, 0, &params);
  });
  CUgraphNodeParams params = asked(handle, CU_GRAPH_COND_TYPE_IF, 1);
  if (!c.Has("cuGraphAddNode", cu.cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &params))) {
    return;
  }
  const CUgraph body = params.conditional.phGraph_out[0];
  c("cuGraphAddNode with a handle that has a node",
    [&] { return add(graph, asked(handle, CU_GRAPH_COND_TYPE_IF, 1)); });
  c("cuGraphAddNode with the handle in its own body",
    [&] { return add(body, asked(handle, CU_GRAPH_COND_TYPE_IF, 1)); });
  c("cuGraphDestroy of a body", [&] { return cu.cuGraphDestroy(body); });
  c("cuGraphClone of a graph with conditional nodes",
    [&] { return cu.cuGraphClone(&clone, graph); });
  c("cuGraphClone of a body", [&] {
    const CUresult result = cu.cuGraphClone(&clone, body);
    if (result == CUDA_SUCCESS) cu.cuGraphDestroy(clone);
    return result;
  });
  c("cuGraphAddChildGraphNode of a graph with conditional nodes",
    [&] { return cu.cuGraphAddChildGraphNode(&added, other, nullptr, 0, graph); });
  c("cuGraphAddHostNode in a body", [&] {
    const CUDA_HOST_NODE_PARAMS host = {[](void*) {}, nullptr};
    const CUresult result = cu.cuGraphAddHostNode(&added, body, nullptr, 0, &host);
    if (result == CUDA_SUCCESS) cu.cuGraphDestroyNode(added);
    return result;
  });
  c("cuGraphNodeSetParams of a conditional node",
    [&] { return cu.cuGraphNodeSetParams(node, &params); });
  if (!c.Has("cuGraphInstantiate", cu.cuGraphInstantiateWithFlags(&exec, graph, 0))) return;
  c("cuGraphInstantiate a second time",
    [&] { return cu.cuGraphInstantiateWithFlags(&second, graph, 0); });
  c("cuGraphExecNodeSetParams of a conditional node",
    [&] { return cu.cuGraphExecNodeSetParams(exec, node, &params); });
  c("cuGraphNodeSetEnabled of a conditional node",
    [&] { return cu.cuGraphNodeSetEnabled(exec, node, 0); });
  c("cuGraphExecUpdate by the same graph", [&] {
    CUgraphExecUpdateResultInfo info{};
    return cu.cuGraphExecUpdate_v2(exec, graph, &info);
  });
  c("cuGraphExecUpdate by a graph without nodes", [&] {
    CUgraphExecUpdateResultInfo info{};
    return cu.cuGraphExecUpdate_v2(exec, other, &info);
  });
  params = asked(foreign, CU_GRAPH_COND_TYPE_IF, 1);
  if (!c.Has("cuGraphAddNode", cu.cuGraphAddNode_v2(&added, other, nullptr, nullptr, 0, &params))) {
    return;
  }
  c("cuGraphExecUpdate by a graph with another handle", [&] {
    CUgraphExecUpdateResultInfo info{};
    return cu.cuGraphExecUpdate_v2(exec, other, &info);
  });
  c("cuGraphConditionalHandleCreate after instantiation",
    [&] { return cu.cuGraphConditionalHandleCreate(&unused, graph, at.context, 0, 0); });
  cu.cuGraphExecDestroy(exec);
  c("cuGraphInstantiate with a handle that came later",
    [&] { return cu.cuGraphInstantiateWithFlags(&second, graph, 0); });
  c("cuGraphDestroyNode of a conditional node", [&] { return cu.cuGraphDestroyNode(node); });
  c("cuGraphAddNode with a handle whose node is gone",
    [&] { return add(graph, asked(handle, CU_GRAPH_COND_TYPE_IF, 1)); });
  c("cuGraphAddNode to a body that is gone",
    [&] { return cu.cuGraphAddEmptyNode(&added, body, nullptr, 0); });
  cu.cuGraphDestroy(other);
  cu.cuGraphDestroy(graph);
}

}  // namespace gpuloom::conformance
