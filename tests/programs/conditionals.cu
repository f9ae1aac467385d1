// SPDX-License-Identifier: Apache-2.0
// Conditional nodes: a loop that a kernel ends, captured; a choice of branches, built by hand; one in
// the other.
#include <vector>

#include "check.h"

constexpr int kCount = 1024;

// One step of the Collatz sequence for each value; the loop goes on as long as one is not 1.
__global__ void Step(unsigned* values, unsigned* steps, unsigned* running) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= kCount || values[i] == 1) return;
  values[i] = values[i] % 2 == 0 ? values[i] / 2 : 3 * values[i] + 1;
  ++steps[i];
  if (values[i] != 1) atomicExch(running, 1u);
}

__global__ void GoOn(cudaGraphConditionalHandle handle, unsigned* running, unsigned* rounds) {
  cudaGraphSetConditional(handle, *running);
  *running = 0;
  ++*rounds;
}

__global__ void Choose(cudaGraphConditionalHandle handle, const unsigned* rounds,
                       unsigned choices) {
  cudaGraphSetConditional(handle, *rounds % choices);
}

__global__ void Count(unsigned* counter) { ++*counter; }

unsigned StepsOnHost(unsigned value) {
  unsigned steps = 0;
  for (; value != 1; ++steps) value = value % 2 == 0 ? value / 2 : 3 * value + 1;
  return steps;
}

int main() {
  Program program("conditionals");
  unsigned *values, *steps, *words;
  program.Ok(cudaMalloc(&values, kCount * sizeof(unsigned)));
  program.Ok(cudaMalloc(&steps, kCount * sizeof(unsigned)));
  program.Ok(cudaMalloc(&words, 8 * sizeof(unsigned)));
  unsigned* const running = words;
  unsigned* const rounds = words + 1;
  unsigned* const counters = words + 2;
  cudaStream_t stream, inner;
  program.Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  program.Ok(cudaStreamCreateWithFlags(&inner, cudaStreamNonBlocking));

  program.Ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  program.Ok(cudaMemsetAsync(steps, 0, kCount * sizeof(unsigned), stream));
  program.Ok(cudaMemsetAsync(words, 0, 8 * sizeof(unsigned), stream));
  cudaStreamCaptureStatus status;
  cudaGraph_t graph;
  const cudaGraphNode_t* after;
  size_t count;
  program.Ok(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, &after, nullptr, &count));
  cudaGraphConditionalHandle loop;
  program.Ok(cudaGraphConditionalHandleCreate(&loop, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = loop;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  cudaGraphNode_t node;
  program.Ok(cudaGraphAddNode(&node, graph, after, nullptr, count, &params));
  const cudaGraph_t body = params.conditional.phGraph_out[0];
  program.Ok(cudaStreamUpdateCaptureDependencies(stream, &node, nullptr, 1,
                                                 cudaStreamSetCaptureDependencies));

  // In the loop: the step, the condition, and one of three counters by the round's number.
  program.Ok(cudaStreamBeginCaptureToGraph(inner, body, nullptr, nullptr, 0,
                                           cudaStreamCaptureModeThreadLocal));
  Step<<<kCount / 128, 128, 0, inner>>>(values, steps, running);
  GoOn<<<1, 1, 0, inner>>>(loop, running, rounds);
  cudaGraphConditionalHandle choice;
  program.Ok(cudaGraphConditionalHandleCreate(&choice, body, 0, 0));
  Choose<<<1, 1, 0, inner>>>(choice, rounds, 4);
  cudaGraph_t same;
  program.Ok(cudaStreamGetCaptureInfo(inner, &status, nullptr, &same, &after, nullptr, &count));
  program.Expect(same == body, "the body is what is captured");
  cudaGraphNodeParams chosen{};
  chosen.type = cudaGraphNodeTypeConditional;
  chosen.conditional.handle = choice;
  chosen.conditional.type = cudaGraphCondTypeSwitch;
  chosen.conditional.size = 3;
  program.Ok(cudaGraphAddNode(&node, body, after, nullptr, count, &chosen));
  for (unsigned i = 0; i < 3; ++i) {
    cudaKernelNodeParams counting{};
    unsigned* counter = counters + i;
    void* arguments[] = {&counter};
    counting.func = reinterpret_cast<void*>(Count);
    counting.gridDim = counting.blockDim = dim3(1);
    counting.kernelParams = arguments;
    cudaGraphNode_t added;
    program.Ok(
        cudaGraphAddKernelNode(&added, chosen.conditional.phGraph_out[i], nullptr, 0, &counting));
  }
  program.Ok(cudaStreamUpdateCaptureDependencies(inner, &node, nullptr, 1,
                                                 cudaStreamSetCaptureDependencies));
  program.Ok(cudaStreamEndCapture(inner, &same));
  program.Ok(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  program.Ok(cudaGraphInstantiate(&exec, graph, 0));

  std::vector<unsigned> host(kCount), got(kCount);
  for (unsigned first = 1; first < 4000; first += 1500) {
    unsigned most = 0;
    for (int i = 0; i < kCount; ++i) host[i] = first + i;
    program.Ok(cudaMemcpy(values, host.data(), kCount * sizeof(unsigned), cudaMemcpyHostToDevice));
    program.Ok(cudaGraphLaunch(exec, stream));
    program.Ok(cudaStreamSynchronize(stream));
    program.Ok(cudaMemcpy(got.data(), steps, kCount * sizeof(unsigned), cudaMemcpyDeviceToHost));
    bool equal = true;
    for (int i = 0; i < kCount; ++i) {
      const unsigned want = StepsOnHost(host[i]);
      equal &= got[i] == want;
      most = want > most ? want : most;
    }
    program.Expect(equal, "the steps of each value");
    unsigned after_run[5];
    program.Ok(cudaMemcpy(after_run, words, sizeof(after_run), cudaMemcpyDeviceToHost));
    program.Expect(after_run[1] == most, "the rounds of the loop");
    for (unsigned i = 0; i < 3; ++i) {
      program.Expect(after_run[2 + i] == (most + 4 - i) / 4 - (i == 0 ? 1 : 0),
                     "the rounds of each branch");
    }
  }
  program.Ok(cudaGraphExecDestroy(exec));
  program.Ok(cudaGraphDestroy(graph));
  return program.Finish("values=%d", kCount);
}
