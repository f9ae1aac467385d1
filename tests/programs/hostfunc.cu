// SPDX-License-Identifier: Apache-2.0
// Host functions and stream callbacks: in their place among the stream's other work, on a thread
// that may not call CUDA, with the host's and the device's memory; also as nodes of a graph.
#include <unistd.h>

#include <atomic>
#include <vector>

#include "check.h"

__global__ void Set(int* word, int value) { *word = value; }
__global__ void Double(int* word) { *word *= 2; }

struct Seen {
  const volatile int* word;
  std::vector<int>* values;
};

void Remember(void* data) {
  const auto* seen = static_cast<const Seen*>(data);
  const int value = *seen->word;
  seen->values->push_back(value);
}

void Callback(cudaStream_t, cudaError_t status, void* data) {
  if (status == cudaSuccess) Remember(data);
}

int main() {
  Program program("hostfunc");
  int* word = nullptr;
  program.Ok(cudaHostAlloc(&word, sizeof(int), cudaHostAllocMapped));
  *word = 0;
  std::vector<int> values;
  Seen seen{word, &values};
  cudaStream_t stream, other;
  program.Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  program.Ok(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  for (int i = 1; i <= 5; ++i) {
    Set<<<1, 1, 0, stream>>>(word, i);
    program.Ok(cudaLaunchHostFunc(stream, Remember, &seen));
    Double<<<1, 1, 0, stream>>>(word);
    program.Ok(cudaStreamAddCallback(stream, Callback, &seen, 0));
  }
  program.Ok(cudaStreamSynchronize(stream));
  const std::vector<int> expected{1, 2, 2, 4, 3, 6, 4, 8, 5, 10};
  program.Expect(values == expected, "host functions saw other values, or came in another order");

  // What stands behind a host function waits for it, in its own stream and through an event.
  std::atomic<bool> finished{false};
  cudaEvent_t event;
  program.Ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  program.Ok(cudaLaunchHostFunc(
      stream,
      [](void* data) {
        usleep(50'000);
        static_cast<std::atomic<bool>*>(data)->store(true);
      },
      &finished));
  program.Ok(cudaEventRecord(event, stream));
  program.Ok(cudaStreamWaitEvent(other, event, 0));
  Set<<<1, 1, 0, other>>>(word, 77);
  program.Ok(cudaStreamSynchronize(other));
  program.Expect(finished, "the other stream did not wait for the host function");
  program.Expect(*word == 77, "the work behind the host function is missing");

  // In graphs: captured, and made by hand.
  values.clear();
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  program.Ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  Set<<<1, 1, 0, stream>>>(word, 100);
  program.Ok(cudaLaunchHostFunc(stream, Remember, &seen));
  Double<<<1, 1, 0, stream>>>(word);
  program.Ok(cudaLaunchHostFunc(stream, Remember, &seen));
  program.Ok(cudaStreamEndCapture(stream, &graph));
  program.Ok(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) program.Ok(cudaGraphLaunch(exec, stream));
  program.Ok(cudaStreamSynchronize(stream));
  program.Expect(values == std::vector<int>({100, 200, 100, 200, 100, 200}),
                 "the graph's host functions saw other values");
  program.Ok(cudaGraphExecDestroy(exec));
  program.Ok(cudaGraphDestroy(graph));

  values.clear();
  program.Ok(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t first, second;
  const cudaHostNodeParams host{Remember, &seen};
  program.Ok(cudaGraphAddHostNode(&first, graph, nullptr, 0, &host));
  program.Ok(cudaGraphAddHostNode(&second, graph, &first, 1, &host));
  program.Ok(cudaGraphInstantiate(&exec, graph, 0));
  program.Ok(cudaGraphLaunch(exec, stream));
  program.Ok(cudaStreamSynchronize(stream));
  program.Expect(values.size() == 2, "host nodes did not run");
  program.Ok(cudaGraphExecDestroy(exec));
  program.Ok(cudaGraphDestroy(graph));
  return program.Finish("streams=2 graphs=2");
}
