// SPDX-License-Identifier: Apache-2.0
// Stream capture: over several streams, in every mode, replayed, updated, and refused where CUDA
// refuses it.
#include <thread>
#include <vector>

#include "check.h"

__global__ void Add(int* values, int n, int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] += by;
}

constexpr int kCount = 2048;

struct Scene {
  int* values = nullptr;
  int* more = nullptr;
  int* host = nullptr;
  cudaStream_t stream, side;
  cudaEvent_t forked, joined;

  explicit Scene(Program& program) {
    program.Ok(cudaMalloc(&values, kCount * sizeof(int)));
    program.Ok(cudaMalloc(&more, kCount * sizeof(int)));
    program.Ok(cudaMallocHost(&host, kCount * sizeof(int)));
    program.Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    program.Ok(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    program.Ok(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    program.Ok(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    // Before any capture, because a kernel's first launch loads it.
    Add<<<1, 1>>>(values, 0, 0);
    program.Ok(cudaDeviceSynchronize());
  }
  void Work(Program& program, int by) {
    program.Ok(cudaMemsetAsync(values, 0, kCount * sizeof(int), stream));
    program.Ok(cudaEventRecord(forked, stream));
    program.Ok(cudaStreamWaitEvent(side, forked, 0));
    program.Ok(cudaMemsetAsync(more, 0, kCount * sizeof(int), side));
    Add<<<8, 256, 0, side>>>(more, kCount, 2 * by);
    Add<<<8, 256, 0, stream>>>(values, kCount, by);
    program.Ok(cudaEventRecord(joined, side));
    program.Ok(cudaStreamWaitEvent(stream, joined, 0));
    program.Ok(
        cudaMemcpyAsync(host, more, kCount / 2 * sizeof(int), cudaMemcpyDeviceToHost, stream));
    program.Ok(cudaMemcpyAsync(host + kCount / 2, values, kCount / 2 * sizeof(int),
                               cudaMemcpyDeviceToHost, stream));
  }
  void Check(Program& program, int by) {
    for (int i = 0; i < kCount / 2; ++i) program.Expect(host[i] == 2 * by, "the branch is wrong");
    for (int i = kCount / 2; i < kCount; ++i) program.Expect(host[i] == by, "the trunk is wrong");
  }
};

cudaGraph_t Captured(Program& program, Scene& scene, cudaStreamCaptureMode mode, int by) {
  cudaGraph_t graph = nullptr;
  program.Ok(cudaStreamBeginCapture(scene.stream, mode));
  scene.Work(program, by);
  cudaStreamCaptureStatus status;
  program.Ok(cudaStreamIsCapturing(scene.side, &status));
  program.Expect(status == cudaStreamCaptureStatusActive, "the branch is not part of the capture");
  program.Ok(cudaStreamEndCapture(scene.stream, &graph));
  return graph;
}

int main() {
  Program program("graph_capture");
  Scene scene(program);
  const cudaStreamCaptureMode modes[] = {
      cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed};
  size_t nodes = 0;
  for (cudaStreamCaptureMode mode : modes) {
    for (int i = 0; i < kCount; ++i) scene.host[i] = -1;
    cudaGraph_t graph = Captured(program, scene, mode, 3);
    program.Ok(cudaStreamSynchronize(scene.stream));
    program.Expect(scene.host[0] == -1, "the capture ran the work");
    program.Ok(cudaGraphGetNodes(graph, nullptr, &nodes));
    cudaGraphExec_t exec;
    program.Ok(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 4; ++i) program.Ok(cudaGraphLaunch(exec, scene.stream));
    program.Ok(cudaStreamSynchronize(scene.stream));
    scene.Check(program, 3);
    // The same shape with other numbers goes into the same instantiated graph.
    cudaGraph_t other = Captured(program, scene, mode, 8);
    cudaGraphExecUpdateResultInfo info{};
    program.Ok(cudaGraphExecUpdate(exec, other, &info));
    program.Ok(cudaGraphLaunch(exec, scene.side));
    program.Ok(cudaStreamSynchronize(scene.side));
    scene.Check(program, 8);
    program.Ok(cudaGraphExecDestroy(exec));
    program.Ok(cudaGraphDestroy(graph));
    program.Ok(cudaGraphDestroy(other));
  }

  // A synchronisation breaks the capture, and nothing else.
  cudaGraph_t broken = nullptr;
  program.Ok(cudaStreamBeginCapture(scene.stream, cudaStreamCaptureModeGlobal));
  program.Fails(cudaStreamSynchronize(scene.stream), cudaErrorStreamCaptureUnsupported);
  program.Fails(cudaStreamEndCapture(scene.stream, &broken), cudaErrorStreamCaptureInvalidated);
  program.Expect(broken == nullptr, "the broken capture gave a graph");

  // Another thread's unsafe call breaks a global capture, and a thread-local one not.
  for (const bool global : {true, false}) {
    program.Ok(cudaStreamBeginCapture(
        scene.stream, global ? cudaStreamCaptureModeGlobal : cudaStreamCaptureModeThreadLocal));
    cudaError_t seen = cudaSuccess;
    std::thread([&seen] {
      void* memory = nullptr;
      seen = cudaMalloc(&memory, 1 << 20);
      if (seen == cudaSuccess) cudaFree(memory);
    }).join();
    program.Expect(seen == (global ? cudaErrorStreamCaptureUnsupported : cudaSuccess),
                   "another thread's cudaMalloc got another answer");
    const cudaError_t end = cudaStreamEndCapture(scene.stream, &broken);
    program.Expect(end == (global ? cudaErrorStreamCaptureInvalidated : cudaSuccess),
                   "the capture ended in another way");
    cudaGetLastError();
  }
  // And work goes on.
  scene.Work(program, 21);
  program.Ok(cudaStreamSynchronize(scene.stream));
  scene.Check(program, 21);
  return program.Finish("modes=3 nodes=%zu", nodes);
}
