// SPDX-License-Identifier: Apache-2.0
// Graphs made by hand: nodes, edges, instantiation, updates.
#include <vector>

#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {
namespace {

constexpr CUdeviceptr kNowhere = 0x1234'5678'9000;

struct Parts {
  CUmodule module = nullptr;
  CUfunction increment = nullptr;
  CUdeviceptr memory = 0;
  void* values[1] = {&memory};
  CUcontext context = nullptr;

  bool Make(Calls& c, const Place& at) {
    const Driver& cu = Cu();
    context = at.context;
    return c.Has("cuModuleLoadData", cu.cuModuleLoadData(&module, kKernels)) &&
           c.Has("cuModuleGetFunction", cu.cuModuleGetFunction(&increment, module, "increment")) &&
           c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&memory, 4 << 20));
  }
  CUDA_KERNEL_NODE_PARAMS Kernel() {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = increment;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = values;
    return params;
  }
  CUDA_MEMSET_NODE_PARAMS Fill() const {
    CUDA_MEMSET_NODE_PARAMS params{};
    params.dst = memory;
    params.elementSize = 4;
    params.width = 16;
    params.height = 1;
    return params;
  }
  CUDA_MEMCPY3D Copy() const {
    CUDA_MEMCPY3D params{};
    params.srcMemoryType = params.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    params.srcDevice = memory;
    params.dstDevice = memory + (1 << 20);
    params.WidthInBytes = 64;
    params.Height = params.Depth = 1;
    return params;
  }
};

}  // namespace

void WrongGraphs(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUgraph graph = nullptr, other = nullptr, clone = nullptr;
  CUgraphNode a = nullptr, b = nullptr, foreign = nullptr, node = nullptr;
  CUgraphNodeType type;
  CUgraphExec exec = nullptr;
  CUuserObject object = nullptr;
  size_t count = 0;
  Parts p;
  c("cuGraphCreate without output", [&] { return cu.cuGraphCreate(nullptr, 0); });
  c("cuGraphCreate with flags", [&] { return cu.cuGraphCreate(&other, 1); });
  c("cuGraphDestroy of none", [&] { return cu.cuGraphDestroy(nullptr); });
  c("cuGraphClone of none", [&] { return cu.cuGraphClone(&clone, nullptr); });
  c("cuGraphGetNodes of none", [&] { return cu.cuGraphGetNodes(nullptr, nullptr, &count); });
  c("cuGraphDestroyNode of none", [&] { return cu.cuGraphDestroyNode(nullptr); });
  c("cuGraphNodeGetType of none", [&] { return cu.cuGraphNodeGetType(nullptr, &type); });
  c("cuGraphInstantiate of none",
    [&] { return cu.cuGraphInstantiateWithFlags(&exec, nullptr, 0); });
  c("cuGraphLaunch of none", [&] { return cu.cuGraphLaunch(nullptr, nullptr); });
  c("cuGraphUpload of none", [&] { return cu.cuGraphUpload(nullptr, nullptr); });
  c("cuGraphExecDestroy of none", [&] { return cu.cuGraphExecDestroy(nullptr); });
  c("cuGraphAddEmptyNode to none",
    [&] { return cu.cuGraphAddEmptyNode(&node, nullptr, nullptr, 0); });
  if (!p.Make(c, at)) return;
  if (!c.Has("cuGraphCreate", cu.cuGraphCreate(&graph, 0))) return;
  if (!c.Has("cuGraphCreate", cu.cuGraphCreate(&other, 0))) return;
  c("cuGraphAddEmptyNode without output",
    [&] { return cu.cuGraphAddEmptyNode(nullptr, graph, nullptr, 0); });
  c("cuGraphAddEmptyNode without its dependencies",
    [&] { return cu.cuGraphAddEmptyNode(&node, graph, nullptr, 1); });
  c("cuGraphAddEmptyNode with a NULL dependency",
    [&] { return cu.cuGraphAddEmptyNode(&node, graph, &node, 1); });
  if (!c.Has("cuGraphAddEmptyNode", cu.cuGraphAddEmptyNode(&a, graph, nullptr, 0))) return;
  if (!c.Has("cuGraphAddEmptyNode", cu.cuGraphAddEmptyNode(&b, graph, &a, 1))) return;
  if (!c.Has("cuGraphAddEmptyNode", cu.cuGraphAddEmptyNode(&foreign, other, nullptr, 0))) return;
  c("cuGraphAddEmptyNode behind a node of another graph",
    [&] { return cu.cuGraphAddEmptyNode(&node, graph, &foreign, 1); });
  c("cuGraphAddEmptyNode behind one node twice", [&] {
    const CUgraphNode twice[] = {a, a};
    return cu.cuGraphAddEmptyNode(&node, graph, twice, 2);
  });
  const auto connect = [&](CUgraphNode from, CUgraphNode to) {
    return cu.cuGraphAddDependencies_v2(graph, &from, &to, nullptr, 1);
  };
  c("cuGraphAddDependencies of none",
    [&] { return cu.cuGraphAddDependencies_v2(graph, nullptr, nullptr, nullptr, 0); });
  c("cuGraphAddDependencies without its lists",
    [&] { return cu.cuGraphAddDependencies_v2(graph, nullptr, nullptr, nullptr, 1); });
  c("cuGraphAddDependencies of a node on itself", [&] { return connect(a, a); });
  c("cuGraphAddDependencies that is there already", [&] { return connect(a, b); });
  c("cuGraphAddDependencies of a node of another graph", [&] { return connect(a, foreign); });
  c("cuGraphAddDependencies of NULL", [&] { return connect(a, nullptr); });
  c("cuGraphRemoveDependencies that is not there",
    [&] { return cu.cuGraphRemoveDependencies_v2(graph, &b, &a, nullptr, 1); });
  c("cuGraphRemoveDependencies of a node of another graph",
    [&] { return cu.cuGraphRemoveDependencies_v2(graph, &a, &foreign, nullptr, 1); });
  c("cuGraphGetNodes without a count", [&] { return cu.cuGraphGetNodes(graph, nullptr, nullptr); });
  c("cuGraphGetRootNodes without a count",
    [&] { return cu.cuGraphGetRootNodes(graph, nullptr, nullptr); });
  c("cuGraphGetEdges without a count",
    [&] { return cu.cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, nullptr); });
  c("cuGraphNodeGetType without output", [&] { return cu.cuGraphNodeGetType(a, nullptr); });
  c("cuGraphNodeGetDependencies without a count",
    [&] { return cu.cuGraphNodeGetDependencies_v2(a, nullptr, nullptr, nullptr); });
  c("cuGraphClone without output", [&] { return cu.cuGraphClone(nullptr, graph); });
  if (!c.Has("cuGraphClone", cu.cuGraphClone(&clone, graph))) return;
  c("cuGraphNodeFindInClone of a node of another graph",
    [&] { return cu.cuGraphNodeFindInClone(&node, foreign, clone); });
  c("cuGraphNodeFindInClone in what is no clone",
    [&] { return cu.cuGraphNodeFindInClone(&node, a, other); });
  c("cuGraphNodeFindInClone without output",
    [&] { return cu.cuGraphNodeFindInClone(nullptr, a, clone); });
  c("cuGraphAddChildGraphNode of none",
    [&] { return cu.cuGraphAddChildGraphNode(&node, graph, nullptr, 0, nullptr); });
  c("cuGraphAddChildGraphNode of itself",
    [&] { return cu.cuGraphAddChildGraphNode(&node, graph, nullptr, 0, graph); });
  c("cuGraphChildGraphNodeGetGraph of another kind of node",
    [&] { return cu.cuGraphChildGraphNodeGetGraph(a, &other); });
  c("cuGraphDebugDotPrint without a name",
    [&] { return cu.cuGraphDebugDotPrint(graph, nullptr, 0); });
  c("cuGraphDebugDotPrint to nowhere",
    [&] { return cu.cuGraphDebugDotPrint(graph, "/nowhere/graph.dot", 0); });
  c("cuUserObjectCreate without output", [&] {
    return cu.cuUserObjectCreate(
        nullptr, nullptr, [](void*) {}, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  });
  c("cuUserObjectCreate without a destructor", [&] {
    return cu.cuUserObjectCreate(&object, nullptr, nullptr, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  });
  c("cuUserObjectCreate without references", [&] {
    return cu.cuUserObjectCreate(
        &object, nullptr, [](void*) {}, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  });
  c("cuUserObjectCreate without flags", [&] {
    return cu.cuUserObjectCreate(
        &object, nullptr, [](void*) {}, 1, 0);
  });
  c("cuUserObjectRetain of none", [&] { return cu.cuUserObjectRetain(nullptr, 1); });
  c("cuUserObjectRelease of none", [&] { return cu.cuUserObjectRelease(nullptr, 1); });
  c("cuGraphRetainUserObject of none",
    [&] { return cu.cuGraphRetainUserObject(graph, nullptr, 1, 0); });
  if (!c.Has("cuUserObjectCreate",
             cu.cuUserObjectCreate(
                 &object, nullptr, [](void*) {}, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)))
    return;
  c("cuGraphRetainUserObject of 0 references",
    [&] { return cu.cuGraphRetainUserObject(graph, object, 0, 0); });
  c("cuGraphRetainUserObject with unknown flags",
    [&] { return cu.cuGraphRetainUserObject(graph, object, 1, 0x80); });
  c("cuGraphReleaseUserObject of what it does not hold",
    [&] { return cu.cuGraphReleaseUserObject(graph, object, 1); });
  c("cuUserObjectRetain of 0 references", [&] { return cu.cuUserObjectRetain(object, 0); });
}

void WrongGraphNodes(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr, kernel = nullptr, fill = nullptr;
  Parts p;
  if (!p.Make(c, at)) return;
  if (!c.Has("cuGraphCreate", cu.cuGraphCreate(&graph, 0))) return;
  CUDA_KERNEL_NODE_PARAMS launch{};
  CUDA_MEMSET_NODE_PARAMS set{};
  CUDA_MEMCPY3D copy{};
  CUDA_HOST_NODE_PARAMS host{};
  const auto add_kernel = [&] {
    return cu.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &launch);
  };
  c("cuGraphAddKernelNode without parameters",
    [&] { return cu.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, nullptr); });
  c("cuGraphAddKernelNode of no function", [&] {
    launch = p.Kernel();
    launch.func = nullptr;
    return add_kernel();
  });
  c("cuGraphAddKernelNode of a grid of width 0", [&] {
    launch = p.Kernel();
    launch.gridDimX = 0;
    return add_kernel();
  });
  c("cuGraphAddKernelNode of 2048 threads", [&] {
    launch = p.Kernel();
    launch.blockDimX = 2048;
    return add_kernel();
  });
  c("cuGraphAddKernelNode of 1 MiB of shared memory", [&] {
    launch = p.Kernel();
    launch.sharedMemBytes = 1 << 20;
    return add_kernel();
  });
  c("cuGraphAddKernelNode without output", [&] {
    launch = p.Kernel();
    return cu.cuGraphAddKernelNode_v2(nullptr, graph, nullptr, 0, &launch);
  });
  const auto add_fill = [&] {
    return cu.cuGraphAddMemsetNode(&node, graph, nullptr, 0, &set, at.context);
  };
  c("cuGraphAddMemsetNode without parameters",
    [&] { return cu.cuGraphAddMemsetNode(&node, graph, nullptr, 0, nullptr, at.context); });
  c("cuGraphAddMemsetNode of elements of 3 bytes", [&] {
    set = p.Fill();
    set.elementSize = 3;
    return add_fill();
  });
  c("cuGraphAddMemsetNode of width 0", [&] {
    set = p.Fill();
    set.width = 0;
    return add_fill();
  });
  c("cuGraphAddMemsetNode of height 0", [&] {
    set = p.Fill();
    set.height = 0;
    return add_fill();
  });
  c("cuGraphAddMemsetNode at nowhere", [&] {
    set = p.Fill();
    set.dst = kNowhere;
    return add_fill();
  });
  c("cuGraphAddMemsetNode at an odd address", [&] {
    set = p.Fill();
    set.dst += 1;
    return add_fill();
  });
  c("cuGraphAddMemsetNode of a pitch below the width", [&] {
    set = p.Fill();
    set.height = 4;
    set.pitch = 32;
    return add_fill();
  });
  c("cuGraphAddMemsetNode beyond the end", [&] {
    set = p.Fill();
    set.width = 256 << 20;
    return add_fill();
  });
  c("cuGraphAddMemsetNode without a context", [&] {
    set = p.Fill();
    return cu.cuGraphAddMemsetNode(&node, graph, nullptr, 0, &set, nullptr);
  });
  const auto add_copy = [&] {
    return cu.cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, at.context);
  };
  c("cuGraphAddMemcpyNode without parameters",
    [&] { return cu.cuGraphAddMemcpyNode(&node, graph, nullptr, 0, nullptr, at.context); });
  c("cuGraphAddMemcpyNode of width 0", [&] {
    copy = p.Copy();
    copy.WidthInBytes = 0;
    return add_copy();
  });
  c("cuGraphAddMemcpyNode of height 0", [&] {
    copy = p.Copy();
    copy.Height = 0;
    return add_copy();
  });
  c("cuGraphAddMemcpyNode from nowhere", [&] {
    copy = p.Copy();
    copy.srcDevice = kNowhere;
    return add_copy();
  });
  c("cuGraphAddMemcpyNode beyond the end", [&] {
    copy = p.Copy();
    copy.WidthInBytes = 256 << 20;
    return add_copy();
  });
  c("cuGraphAddMemcpyNode from an unknown kind of memory", [&] {
    copy = p.Copy();
    copy.srcMemoryType = static_cast<CUmemorytype>(99);
    return add_copy();
  });
  c("cuGraphAddMemcpyNode of a pitch below the width", [&] {
    copy = p.Copy();
    copy.Height = 4;
    copy.srcPitch = copy.dstPitch = 32;
    return add_copy();
  });
  c("cuGraphAddHostNode without parameters",
    [&] { return cu.cuGraphAddHostNode(&node, graph, nullptr, 0, nullptr); });
  c("cuGraphAddHostNode of no function",
    [&] { return cu.cuGraphAddHostNode(&node, graph, nullptr, 0, &host); });
  c("cuGraphAddEventRecordNode of none",
    [&] { return cu.cuGraphAddEventRecordNode(&node, graph, nullptr, 0, nullptr); });
  c("cuGraphAddEventWaitNode of none",
    [&] { return cu.cuGraphAddEventWaitNode(&node, graph, nullptr, 0, nullptr); });
  c("cuGraphAddMemFreeNode of nowhere",
    [&] { return cu.cuGraphAddMemFreeNode(&node, graph, nullptr, 0, kNowhere); });
  c("cuGraphAddMemFreeNode of NULL",
    [&] { return cu.cuGraphAddMemFreeNode(&node, graph, nullptr, 0, 0); });
  c("cuGraphAddMemAllocNode without parameters",
    [&] { return cu.cuGraphAddMemAllocNode(&node, graph, nullptr, 0, nullptr); });
  CUDA_MEM_ALLOC_NODE_PARAMS allocation{};
  c("cuGraphAddMemAllocNode of empty parameters",
    [&] { return cu.cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &allocation); });
  c("cuGraphAddMemAllocNode of nothing", [&] {
    allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    allocation.poolProps.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = at.device};
    return cu.cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &allocation);
  });
  CUgraphNodeParams any{};
  c("cuGraphAddNode without parameters",
    [&] { return cu.cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, nullptr); });
  c("cuGraphAddNode of an unknown kind", [&] {
    any.type = static_cast<CUgraphNodeType>(99);
    return cu.cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &any);
  });
  c("cuGraphAddNode with reserved words set", [&] {
    any = {};
    any.type = CU_GRAPH_NODE_TYPE_EMPTY;
    any.reserved0[0] = 1;
    return cu.cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &any);
  });
  CUgraphConditionalHandle condition = 0;
  c("cuGraphConditionalHandleCreate with unknown flags",
    [&] { return cu.cuGraphConditionalHandleCreate(&condition, graph, at.context, 0, 0x80); });
  c("cuGraphConditionalHandleCreate without output",
    [&] { return cu.cuGraphConditionalHandleCreate(nullptr, graph, at.context, 0, 0); });
  launch = p.Kernel();
  set = p.Fill();
  if (!c.Has("cuGraphAddKernelNode",
             cu.cuGraphAddKernelNode_v2(&kernel, graph, nullptr, 0, &launch)))
    return;
  if (!c.Has("cuGraphAddMemsetNode",
             cu.cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &set, at.context)))
    return;
  c("cuGraphKernelNodeGetParams of another kind of node",
    [&] { return cu.cuGraphKernelNodeGetParams_v2(fill, &launch); });
  c("cuGraphKernelNodeGetParams without output",
    [&] { return cu.cuGraphKernelNodeGetParams_v2(kernel, nullptr); });
  c("cuGraphKernelNodeGetParams of none",
    [&] { return cu.cuGraphKernelNodeGetParams_v2(nullptr, &launch); });
  c("cuGraphKernelNodeSetParams of another kind of node", [&] {
    launch = p.Kernel();
    return cu.cuGraphKernelNodeSetParams_v2(fill, &launch);
  });
  c("cuGraphKernelNodeSetParams of a grid of width 0", [&] {
    launch = p.Kernel();
    launch.gridDimX = 0;
    return cu.cuGraphKernelNodeSetParams_v2(kernel, &launch);
  });
  c("cuGraphKernelNodeSetAttribute unknown", [&] {
    CUkernelNodeAttrValue value{};
    return cu.cuGraphKernelNodeSetAttribute(kernel, static_cast<CUkernelNodeAttrID>(99), &value);
  });
  c("cuGraphMemsetNodeGetParams of another kind of node",
    [&] { return cu.cuGraphMemsetNodeGetParams(kernel, &set); });
  c("cuGraphMemsetNodeSetParams of elements of 3 bytes", [&] {
    set = p.Fill();
    set.elementSize = 3;
    return cu.cuGraphMemsetNodeSetParams(fill, &set);
  });
  c("cuGraphMemcpyNodeGetParams of another kind of node",
    [&] { return cu.cuGraphMemcpyNodeGetParams(kernel, &copy); });
  c("cuGraphHostNodeGetParams of another kind of node",
    [&] { return cu.cuGraphHostNodeGetParams(kernel, &host); });
  c("cuGraphEventRecordNodeGetEvent of another kind of node", [&] {
    CUevent event = nullptr;
    return cu.cuGraphEventRecordNodeGetEvent(kernel, &event);
  });
}

void WrongGraphExecs(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUgraph graph = nullptr, other = nullptr, cyclic = nullptr, empty = nullptr;
  CUgraphNode kernel = nullptr, fill = nullptr, foreign = nullptr, copy_node = nullptr;
  CUgraphExec exec = nullptr, failed = nullptr;
  CUgraphExecUpdateResultInfo info{};
  Parts p;
  if (!p.Make(c, at)) return;
  for (CUgraph* made : {&graph, &other, &cyclic, &empty}) {
    if (!c.Has("cuGraphCreate", cu.cuGraphCreate(made, 0))) return;
  }
  CUDA_KERNEL_NODE_PARAMS launch = p.Kernel();
  CUDA_MEMSET_NODE_PARAMS set = p.Fill();
  CUDA_MEMCPY3D copy = p.Copy();
  if (!c.Has("cuGraphAddKernelNode",
             cu.cuGraphAddKernelNode_v2(&kernel, graph, nullptr, 0, &launch)))
    return;
  if (!c.Has("cuGraphAddMemsetNode",
             cu.cuGraphAddMemsetNode(&fill, graph, &kernel, 1, &set, at.context)))
    return;
  if (!c.Has("cuGraphAddMemcpyNode",
             cu.cuGraphAddMemcpyNode(&copy_node, graph, &fill, 1, &copy, at.context)))
    return;
  if (!c.Has("cuGraphAddKernelNode",
             cu.cuGraphAddKernelNode_v2(&foreign, other, nullptr, 0, &launch)))
    return;
  c("cuGraphInstantiate without output",
    [&] { return cu.cuGraphInstantiateWithFlags(nullptr, graph, 0); });
  c("cuGraphInstantiate with unknown flags",
    [&] { return cu.cuGraphInstantiateWithFlags(&failed, graph, 0x8000); });
  c("cuGraphInstantiate for the device", [&] {
    return cu.cuGraphInstantiateWithFlags(&failed, graph,
                                          CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                              CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
  });
  c("cuGraphInstantiateWithParams without parameters",
    [&] { return cu.cuGraphInstantiateWithParams(&failed, graph, nullptr); });
  // A circle of two.
  CUgraphNode first = nullptr, second = nullptr;
  if (!c.Has("cuGraphAddEmptyNode", cu.cuGraphAddEmptyNode(&first, cyclic, nullptr, 0))) return;
  if (!c.Has("cuGraphAddEmptyNode", cu.cuGraphAddEmptyNode(&second, cyclic, &first, 1))) return;
  c("cuGraphAddDependencies that closes a circle",
    [&] { return cu.cuGraphAddDependencies_v2(cyclic, &second, &first, nullptr, 1); });
  c("cuGraphInstantiate of a circle",
    [&] { return cu.cuGraphInstantiateWithFlags(&failed, cyclic, 0); });
  c("cuGraphInstantiate of an empty graph", [&] {
    CUgraphExec nothing = nullptr;
    return cu.cuGraphInstantiateWithFlags(&nothing, empty, 0);
  });
  if (!c.Has("cuGraphInstantiate", cu.cuGraphInstantiateWithFlags(&exec, graph, 0))) return;
  c("cuGraphExecKernelNodeSetParams of a node of another graph",
    [&] { return cu.cuGraphExecKernelNodeSetParams_v2(exec, foreign, &launch); });
  c("cuGraphExecKernelNodeSetParams of another kind of node",
    [&] { return cu.cuGraphExecKernelNodeSetParams_v2(exec, fill, &launch); });
  c("cuGraphExecKernelNodeSetParams without parameters",
    [&] { return cu.cuGraphExecKernelNodeSetParams_v2(exec, kernel, nullptr); });
  c("cuGraphExecKernelNodeSetParams of a grid of width 0", [&] {
    launch.gridDimX = 0;
    return cu.cuGraphExecKernelNodeSetParams_v2(exec, kernel, &launch);
  });
  c("cuGraphExecKernelNodeSetParams of no function", [&] {
    launch = p.Kernel();
    launch.func = nullptr;
    return cu.cuGraphExecKernelNodeSetParams_v2(exec, kernel, &launch);
  });
  c("cuGraphExecMemsetNodeSetParams at nowhere", [&] {
    set.dst = kNowhere;
    return cu.cuGraphExecMemsetNodeSetParams(exec, fill, &set, at.context);
  });
  c("cuGraphExecMemsetNodeSetParams of another kind of node", [&] {
    set = p.Fill();
    return cu.cuGraphExecMemsetNodeSetParams(exec, kernel, &set, at.context);
  });
  c("cuGraphExecMemcpyNodeSetParams from nowhere", [&] {
    copy.srcDevice = kNowhere;
    return cu.cuGraphExecMemcpyNodeSetParams(exec, copy_node, &copy, at.context);
  });
  c("cuGraphExecMemcpyNodeSetParams of another kind of memory", [&] {
    static char host[64];
    copy = p.Copy();
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host;
    return cu.cuGraphExecMemcpyNodeSetParams(exec, copy_node, &copy, at.context);
  });
  c("cuGraphNodeSetEnabled of a node of another graph",
    [&] { return cu.cuGraphNodeSetEnabled(exec, foreign, 0); });
  c("cuGraphNodeGetEnabled without output",
    [&] { return cu.cuGraphNodeGetEnabled(exec, kernel, nullptr); });
  c("cuGraphExecUpdate without a result",
    [&] { return cu.cuGraphExecUpdate_v2(exec, graph, nullptr); });
  c("cuGraphExecUpdate of no graph", [&] { return cu.cuGraphExecUpdate_v2(exec, nullptr, &info); });
  c("cuGraphExecUpdate from a graph with fewer nodes",
    [&] { return cu.cuGraphExecUpdate_v2(exec, other, &info); });
  c("cuGraphExecUpdate from an empty graph",
    [&] { return cu.cuGraphExecUpdate_v2(exec, empty, &info); });
  c("cuGraphExecUpdate from a graph with another kind of node", [&] {
    CUgraph changed = nullptr;
    CUgraphNode a = nullptr, b = nullptr, d = nullptr;
    set = p.Fill();
    copy = p.Copy();
    (void)cu.cuGraphCreate(&changed, 0);
    (void)cu.cuGraphAddMemsetNode(&a, changed, nullptr, 0, &set, at.context);
    (void)cu.cuGraphAddMemsetNode(&b, changed, &a, 1, &set, at.context);
    (void)cu.cuGraphAddMemcpyNode(&d, changed, &b, 1, &copy, at.context);
    return cu.cuGraphExecUpdate_v2(exec, changed, &info);
  });
  c("cuGraphExecUpdate from a graph with another edge", [&] {
    CUgraph changed = nullptr;
    (void)cu.cuGraphClone(&changed, graph);
    CUgraphNode from = nullptr, to = nullptr;
    (void)cu.cuGraphNodeFindInClone(&from, kernel, changed);
    (void)cu.cuGraphNodeFindInClone(&to, fill, changed);
    (void)cu.cuGraphRemoveDependencies_v2(changed, &from, &to, nullptr, 1);
    return cu.cuGraphExecUpdate_v2(exec, changed, &info);
  });
  c("cuGraphExecGetFlags without output", [&] { return cu.cuGraphExecGetFlags(exec, nullptr); });
  c("cuGraphDestroyNode of a node of an instantiated graph",
    [&] { return cu.cuGraphDestroyNode(copy_node); });
  c("cuGraphExecMemcpyNodeSetParams of a node that was destroyed in another graph", [&] {
    copy = p.Copy();
    return cu.cuGraphExecMemcpyNodeSetParams(exec, foreign, &copy, at.context);
  });
  c("cuGraphLaunch after all of them", [&] { return cu.cuGraphLaunch(exec, nullptr); });
  c("cuCtxSynchronize after all of them", [&] { return cu.cuCtxSynchronize(); });
  c("cuGraphExecDestroy at last", [&] { return cu.cuGraphExecDestroy(exec); });
}

}  // namespace gpuloom::conformance
