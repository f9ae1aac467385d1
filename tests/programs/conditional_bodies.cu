// SPDX-License-Identifier: Apache-2.0
// Bodies of conditional nodes that are captured from streams, each kind of node: who ends such a
// capture need not ask for the graph, because the body is the node's.
#include <vector>

#include "check.h"

__global__ void SetCondition(cudaGraphConditionalHandle handle, const unsigned* value) {
  cudaGraphSetConditional(handle, *value);
}

__global__ void CountDown(cudaGraphConditionalHandle handle, unsigned* left) {
  cudaGraphSetConditional(handle, --*left);
}

__global__ void Add(unsigned* word, unsigned by) { *word += by; }

// words[0] decides, the others are what bodies add to.
struct Scene {
  Program& program;
  unsigned* words = nullptr;
  cudaStream_t stream = nullptr;

  explicit Scene(Program& of) : program(of) {
    program.Ok(cudaMalloc(&words, 8 * sizeof(unsigned)));
    program.Ok(cudaStreamCreate(&stream));
    // Before any capture, because a kernel's first launch loads it.
    Add<<<1, 1, 0, stream>>>(words, 0);
    program.Ok(cudaStreamSynchronize(stream));
  }

  cudaGraphNodeParams Kernel(void* function, void** arguments) {
    cudaGraphNodeParams params{};
    params.type = cudaGraphNodeTypeKernel;
    params.kernel.func = function;
    params.kernel.gridDim = params.kernel.blockDim = dim3(1, 1, 1);
    params.kernel.kernelParams = arguments;
    return params;
  }

  // A kernel that sets the handle by words[0], then the conditional node.
  std::vector<cudaGraph_t> AddConditional(cudaGraph_t graph, cudaGraphConditionalHandle handle,
                                          cudaGraphConditionalNodeType type, unsigned size) {
    void* arguments[] = {&handle, &words};
    cudaGraphNodeParams setting = Kernel(reinterpret_cast<void*>(SetCondition), arguments);
    cudaGraphNode_t set, node;
    program.Ok(cudaGraphAddNode(&set, graph, nullptr, nullptr, 0, &setting));
    cudaGraphNodeParams params{};
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    program.Ok(cudaGraphAddNode(&node, graph, &set, nullptr, 1, &params));
    return {params.conditional.phGraph_out, params.conditional.phGraph_out + size};
  }

  // In a stream of its own, which is gone when the graph runs.
  template <typename Work>
  void Capture(cudaGraph_t body, Work work) {
    cudaStream_t own;
    program.Ok(cudaStreamCreate(&own));
    program.Ok(
        cudaStreamBeginCaptureToGraph(own, body, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
    work(own);
    program.Ok(cudaStreamEndCapture(own, nullptr));
    cudaStreamCaptureStatus status;
    program.Ok(cudaStreamIsCapturing(own, &status));
    program.Expect(status == cudaStreamCaptureStatusNone, "the capture has ended");
    program.Ok(cudaStreamDestroy(own));
  }

  std::vector<unsigned> Run(cudaGraphExec_t exec, unsigned value) {
    std::vector<unsigned> after(8);
    after[0] = value;
    program.Ok(cudaMemcpy(words, after.data(), 8 * sizeof(unsigned), cudaMemcpyHostToDevice));
    program.Ok(cudaGraphLaunch(exec, stream));
    program.Ok(cudaStreamSynchronize(stream));
    program.Ok(cudaMemcpy(after.data(), words, 8 * sizeof(unsigned), cudaMemcpyDeviceToHost));
    return after;
  }

  cudaGraphExec_t Instantiate(cudaGraph_t graph) {
    cudaGraphExec_t exec;
    program.Ok(cudaGraphInstantiate(&exec, graph, 0));
    return exec;
  }
  void Destroy(cudaGraphExec_t exec, cudaGraph_t graph) {
    program.Ok(cudaGraphExecDestroy(exec));
    program.Ok(cudaGraphDestroy(graph));
  }
};

void If(Scene& scene, bool otherwise) {
  Program& program = scene.program;
  cudaGraph_t graph;
  program.Ok(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  program.Ok(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
  const auto bodies = scene.AddConditional(graph, handle, cudaGraphCondTypeIf, otherwise ? 2 : 1);
  scene.Capture(bodies[0], [&](cudaStream_t own) { Add<<<1, 1, 0, own>>>(scene.words + 1, 5); });
  if (otherwise) {
    scene.Capture(bodies[1], [&](cudaStream_t own) {
      Add<<<1, 1, 0, own>>>(scene.words + 2, 7);
      Add<<<1, 1, 0, own>>>(scene.words + 2, 7);
    });
  }
  const cudaGraphExec_t exec = scene.Instantiate(graph);
  for (const unsigned value : {0u, 1u, 0u, 3u}) {
    const auto after = scene.Run(exec, value);
    program.Expect(after[1] == (value != 0 ? 5 : 0), "what the body added");
    program.Expect(after[2] == (otherwise && value == 0 ? 14 : 0), "what the other one added");
  }
  scene.Destroy(exec, graph);
}

// The body runs at least once: the condition is true until the body says otherwise.
void Loop(Scene& scene) {
  Program& program = scene.program;
  cudaGraph_t graph;
  program.Ok(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle handle;
  program.Ok(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  cudaGraphNode_t node;
  program.Ok(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  const cudaGraph_t body = params.conditional.phGraph_out[0];
  // Two captures, the second one behind the first one's nodes.
  scene.Capture(body, [&](cudaStream_t own) { Add<<<1, 1, 0, own>>>(scene.words + 1, 2); });
  cudaGraphNode_t first;
  size_t count = 1;
  program.Ok(cudaGraphGetNodes(body, &first, &count));
  program.Expect(count == 1, "one node was captured");
  cudaStream_t own;
  program.Ok(cudaStreamCreate(&own));
  program.Ok(
      cudaStreamBeginCaptureToGraph(own, body, &first, nullptr, 1, cudaStreamCaptureModeGlobal));
  CountDown<<<1, 1, 0, own>>>(handle, scene.words);
  program.Ok(cudaStreamEndCapture(own, nullptr));
  program.Ok(cudaStreamDestroy(own));
  program.Ok(cudaGraphGetEdges(body, nullptr, nullptr, nullptr, &count));
  program.Expect(count == 1, "the second capture came behind the first");
  const cudaGraphExec_t exec = scene.Instantiate(graph);
  for (const unsigned rounds : {1u, 10u, 3u}) {
    program.Expect(scene.Run(exec, rounds)[1] == 2 * rounds, "the rounds of the loop");
  }
  scene.Destroy(exec, graph);
}

// All of it captured; the handle is set by what was captured before the loop.
void CapturedLoop(Scene& scene) {
  Program& program = scene.program;
  program.Ok(cudaStreamBeginCapture(scene.stream, cudaStreamCaptureModeGlobal));
  cudaGraph_t graph;
  cudaStreamCaptureStatus status;
  program.Ok(cudaStreamGetCaptureInfo(scene.stream, &status, nullptr, &graph));
  cudaGraphConditionalHandle handle;
  program.Ok(cudaGraphConditionalHandleCreate(&handle, graph, 0, 0));
  SetCondition<<<1, 1, 0, scene.stream>>>(handle, scene.words);
  const cudaGraphNode_t* before;
  size_t count;
  program.Ok(
      cudaStreamGetCaptureInfo(scene.stream, &status, nullptr, &graph, &before, nullptr, &count));
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  cudaGraphNode_t node;
  program.Ok(cudaGraphAddNode(&node, graph, before, nullptr, count, &params));
  program.Ok(cudaStreamUpdateCaptureDependencies(scene.stream, &node, nullptr, 1,
                                                 cudaStreamSetCaptureDependencies));
  scene.Capture(params.conditional.phGraph_out[0], [&](cudaStream_t own) {
    Add<<<1, 1, 0, own>>>(scene.words + 1, 3);
    CountDown<<<1, 1, 0, own>>>(handle, scene.words);
  });
  Add<<<1, 1, 0, scene.stream>>>(scene.words + 2, 1);
  program.Ok(cudaStreamEndCapture(scene.stream, &graph));
  const cudaGraphExec_t exec = scene.Instantiate(graph);
  for (const unsigned rounds : {0u, 4u, 1u}) {
    const auto after = scene.Run(exec, rounds);
    program.Expect(after[1] == 3 * rounds, "the rounds of the loop");
    program.Expect(after[2] == 1, "what comes behind the loop");
  }
  scene.Destroy(exec, graph);
}

// A body holds the next choice.
void Switches(Scene& scene) {
  Program& program = scene.program;
  cudaGraph_t graph;
  program.Ok(cudaGraphCreate(&graph, 0));
  cudaGraphConditionalHandle outer, inner;
  program.Ok(cudaGraphConditionalHandleCreate(&outer, graph, 0, 0));
  program.Ok(cudaGraphConditionalHandleCreate(&inner, graph, 0, 0));
  const auto bodies = scene.AddConditional(graph, outer, cudaGraphCondTypeSwitch, 4);
  for (unsigned i = 0; i < 3; ++i) {
    scene.Capture(bodies[i],
                  [&](cudaStream_t own) { Add<<<1, 1, 0, own>>>(scene.words + 1 + i, 1 + i); });
  }
  const auto last = scene.AddConditional(bodies[3], inner, cudaGraphCondTypeIf, 1);
  scene.Capture(last[0], [&](cudaStream_t own) { Add<<<1, 1, 0, own>>>(scene.words + 4, 9); });
  const cudaGraphExec_t exec = scene.Instantiate(graph);
  for (unsigned value = 0; value < 6; ++value) {
    const auto after = scene.Run(exec, value);
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned added = i < 3 ? 1 + i : 9;
      program.Expect(after[1 + i] == (value == i ? added : 0), "what each body added");
    }
  }
  scene.Destroy(exec, graph);
}

int main() {
  Program program("conditional_bodies");
  Scene scene(program);
  If(scene, false);
  If(scene, true);
  Loop(scene);
  CapturedLoop(scene);
  Switches(scene);
  // Nobody asks for this one, either.
  program.Ok(cudaStreamBeginCapture(scene.stream, cudaStreamCaptureModeGlobal));
  Add<<<1, 1, 0, scene.stream>>>(scene.words, 1);
  program.Ok(cudaStreamEndCapture(scene.stream, nullptr));
  program.Ok(cudaStreamSynchronize(scene.stream));
  return program.Finish("graphs=5");
}
