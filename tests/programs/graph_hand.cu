// SPDX-License-Identifier: Apache-2.0
// The graph API by hand: kernel, copy, fill, empty, child and event nodes; questions about them;
// changes to the instantiated graph; clones.
#include <vector>

#include "check.h"

__global__ void Add(int* values, int n, int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] += by;
}

constexpr int kCount = 4096;

struct Memory {
  int* a;
  int* b;
  std::vector<int> host;
};

cudaKernelNodeParams AddParams(int** values, int* n, int* by, void** arguments) {
  arguments[0] = values;
  arguments[1] = n;
  arguments[2] = by;
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(Add);
  params.gridDim = dim3((kCount + 255) / 256);
  params.blockDim = dim3(256);
  params.kernelParams = arguments;
  return params;
}

int main() {
  Program program("graph_hand");
  Memory memory{nullptr, nullptr, std::vector<int>(kCount)};
  program.Ok(cudaMalloc(&memory.a, kCount * sizeof(int)));
  program.Ok(cudaMalloc(&memory.b, kCount * sizeof(int)));
  cudaStream_t stream;
  program.Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  cudaGraph_t graph, child;
  program.Ok(cudaGraphCreate(&graph, 0));
  program.Ok(cudaGraphCreate(&child, 0));
  int n = kCount, one = 1, ten = 10;
  void* arguments[3];
  void* child_arguments[3];

  // fill a with 0 → a += 1 → (child: a += 10) → copy a to b → copy b to the host
  cudaMemsetParams fill{};
  fill.dst = memory.a;
  fill.elementSize = 4;
  fill.width = kCount;
  fill.height = 1;
  cudaGraphNode_t fill_node, add_node, child_node, copy_node, back_node, empty_node;
  program.Ok(cudaGraphAddMemsetNode(&fill_node, graph, nullptr, 0, &fill));
  cudaKernelNodeParams add = AddParams(&memory.a, &n, &one, arguments);
  program.Ok(cudaGraphAddKernelNode(&add_node, graph, &fill_node, 1, &add));
  cudaKernelNodeParams child_add = AddParams(&memory.a, &n, &ten, child_arguments);
  cudaGraphNode_t inside;
  program.Ok(cudaGraphAddKernelNode(&inside, child, nullptr, 0, &child_add));
  program.Ok(cudaGraphAddChildGraphNode(&child_node, graph, &add_node, 1, child));
  program.Ok(cudaGraphAddMemcpyNode1D(&copy_node, graph, &child_node, 1, memory.b, memory.a,
                                      kCount * sizeof(int), cudaMemcpyDeviceToDevice));
  program.Ok(cudaGraphAddEmptyNode(&empty_node, graph, &copy_node, 1));
  program.Ok(cudaGraphAddMemcpyNode1D(&back_node, graph, &empty_node, 1, memory.host.data(),
                                      memory.b, kCount * sizeof(int), cudaMemcpyDeviceToHost));

  size_t nodes = 0, roots = 0, edges = 0;
  program.Ok(cudaGraphGetNodes(graph, nullptr, &nodes));
  program.Ok(cudaGraphGetRootNodes(graph, nullptr, &roots));
  program.Ok(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  program.Expect(nodes == 6 && roots == 1 && edges == 5, "the graph has another shape");
  cudaGraphNodeType type;
  program.Ok(cudaGraphNodeGetType(child_node, &type));
  program.Expect(type == cudaGraphNodeTypeGraph, "the child is another kind of node");
  cudaKernelNodeParams read{};
  program.Ok(cudaGraphKernelNodeGetParams(add_node, &read));
  program.Expect(read.gridDim.x == add.gridDim.x && read.func == add.func,
                 "the node has other parameters");

  const auto all_are = [&](int wanted, const char* what) {
    for (int value : memory.host) program.Expect(value == wanted, what);
  };
  cudaGraphExec_t exec;
  program.Ok(cudaGraphInstantiate(&exec, graph, 0));
  for (int round = 0; round < 3; ++round) {
    for (int& value : memory.host) value = -1;
    program.Ok(cudaGraphLaunch(exec, stream));
    program.Ok(cudaStreamSynchronize(stream));
    all_are(11, "the graph computed something else");
  }

  // Other arguments in the instantiated graph only.
  int hundred = 100;
  void* changed_arguments[3];
  cudaKernelNodeParams changed = AddParams(&memory.a, &n, &hundred, changed_arguments);
  program.Ok(cudaGraphExecKernelNodeSetParams(exec, add_node, &changed));
  fill.value = 5;
  program.Ok(cudaGraphExecMemsetNodeSetParams(exec, fill_node, &fill));
  program.Ok(cudaGraphLaunch(exec, stream));
  program.Ok(cudaStreamSynchronize(stream));
  all_are(115, "the changed arguments are missing");

  // A clone keeps the old arguments; the update brings them back.
  cudaGraph_t clone;
  program.Ok(cudaGraphClone(&clone, graph));
  cudaGraphNode_t in_clone;
  program.Ok(cudaGraphNodeFindInClone(&in_clone, add_node, clone));
  cudaGraphExecUpdateResultInfo info{};
  program.Ok(cudaGraphExecUpdate(exec, clone, &info));
  program.Expect(info.result == cudaGraphExecUpdateSuccess, "the update was refused");
  program.Ok(cudaGraphLaunch(exec, stream));
  program.Ok(cudaStreamSynchronize(stream));
  all_are(11, "the updated graph computed something else");

  // Without one node.
  program.Ok(cudaGraphNodeSetEnabled(exec, add_node, 0));
  program.Ok(cudaGraphLaunch(exec, stream));
  program.Ok(cudaStreamSynchronize(stream));
  all_are(10, "the disabled node ran");

  // Two branches that join, with events around them.
  cudaGraph_t wide;
  program.Ok(cudaGraphCreate(&wide, 0));
  cudaEvent_t start, end;
  program.Ok(cudaEventCreate(&start));
  program.Ok(cudaEventCreate(&end));
  cudaGraphNode_t begin_node, left, right, join, end_node;
  program.Ok(cudaGraphAddEventRecordNode(&begin_node, wide, nullptr, 0, start));
  cudaKernelNodeParams to_a = AddParams(&memory.a, &n, &one, arguments);
  program.Ok(cudaGraphAddKernelNode(&left, wide, &begin_node, 1, &to_a));
  cudaKernelNodeParams to_b = AddParams(&memory.b, &n, &ten, child_arguments);
  program.Ok(cudaGraphAddKernelNode(&right, wide, &begin_node, 1, &to_b));
  const cudaGraphNode_t both[] = {left, right};
  program.Ok(cudaGraphAddEmptyNode(&join, wide, both, 2));
  program.Ok(cudaGraphAddEventRecordNode(&end_node, wide, &join, 1, end));
  cudaGraphExec_t wide_exec;
  program.Ok(cudaGraphInstantiate(&wide_exec, wide, 0));
  program.Ok(cudaMemset(memory.a, 0, kCount * sizeof(int)));
  program.Ok(cudaMemset(memory.b, 0, kCount * sizeof(int)));
  program.Ok(cudaDeviceSynchronize());
  for (int i = 0; i < 4; ++i) program.Ok(cudaGraphLaunch(wide_exec, stream));
  program.Ok(cudaStreamSynchronize(stream));
  float ms = -1;
  program.Ok(cudaEventElapsedTime(&ms, start, end));
  program.Expect(ms >= 0, "the graph's events have no times");
  program.Ok(cudaMemcpy(memory.host.data(), memory.a, kCount * sizeof(int), cudaMemcpyDefault));
  all_are(4, "the left branch is wrong");
  program.Ok(cudaMemcpy(memory.host.data(), memory.b, kCount * sizeof(int), cudaMemcpyDefault));
  all_are(40, "the right branch is wrong");

  for (cudaGraphExec_t made : {exec, wide_exec}) program.Ok(cudaGraphExecDestroy(made));
  for (cudaGraph_t made : {graph, child, clone, wide}) program.Ok(cudaGraphDestroy(made));
  return program.Finish("nodes=%zu edges=%zu", nodes, edges);
}
