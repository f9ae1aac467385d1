// SPDX-License-Identifier: Apache-2.0
// Streams: CUDA's barrier between the legacy default stream and blocking streams, non-blocking
// streams that take no part in it, events across streams, and a pipeline of asynchronous pinned
// copies. The order is proved with kernels that wait for the host, not with clocks.
#include <vector>

#include "check.h"
#include "device_clock.h"

constexpr uint64_t kGiveUpNs = 20'000'000'000;

struct Journal {
  uint32_t count;
  uint32_t timeouts;
  uint32_t entries[16];
};

__global__ void Append(Journal* journal, uint32_t id) {
  journal->entries[atomicAdd(&journal->count, 1)] = id;
}

__global__ void WaitThenAppend(const volatile uint32_t* flag, Journal* journal, uint32_t id) {
  if (!WaitForHost(flag, kGiveUpNs)) atomicAdd(&journal->timeouts, 1);
  journal->entries[atomicAdd(&journal->count, 1)] = id;
}

__global__ void Scale(float* values, int n, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] *= factor;
}

// The legacy default stream waits for every blocking stream, and they wait for it; a non-blocking
// stream runs through.
void LegacyBarrier(Program& program) {
  uint32_t* flag;
  Journal* journal;
  cudaStream_t first, second, free_running;
  program.Ok(cudaHostAlloc(&flag, sizeof(*flag), cudaHostAllocMapped));
  program.Ok(cudaMalloc(&journal, sizeof(*journal)));
  program.Ok(cudaMemset(journal, 0, sizeof(*journal)));
  program.Ok(cudaStreamCreate(&first));
  program.Ok(cudaStreamCreate(&second));
  program.Ok(cudaStreamCreateWithFlags(&free_running, cudaStreamNonBlocking));
  // Once through, because loading a kernel's code may wait for running kernels.
  *flag = 1;
  WaitThenAppend<<<1, 1>>>(flag, journal, 0);
  Append<<<1, 1>>>(journal, 0);
  program.Ok(cudaMemset(journal, 0, sizeof(*journal)));
  program.Ok(cudaDeviceSynchronize());
  *flag = 0;

  WaitThenAppend<<<1, 1, 0, first>>>(flag, journal, 1);
  Append<<<1, 1>>>(journal, 2);             // legacy: behind `first`
  Append<<<1, 1, 0, second>>>(journal, 3);  // behind the legacy stream
  Append<<<1, 1, 0, free_running>>>(journal, 4);
  program.Ok(cudaGetLastError());
  program.Ok(cudaStreamSynchronize(free_running));  // would hang if it took part in the barrier
  program.Expect(cudaStreamQuery(first) == cudaErrorNotReady, "the first stream did not wait");
  program.Expect(cudaStreamQuery(second) == cudaErrorNotReady, "the barrier did not hold back");
  program.Expect(cudaStreamQuery(cudaStreamLegacy) == cudaErrorNotReady,
                 "the legacy stream ran ahead of a blocking stream");
  *reinterpret_cast<volatile uint32_t*>(flag) = 1;
  program.Ok(cudaDeviceSynchronize());

  Journal seen;
  program.Ok(cudaMemcpy(&seen, journal, sizeof(seen), cudaMemcpyDeviceToHost));
  program.Expect(seen.count == 4 && seen.timeouts == 0, "a kernel is missing or timed out");
  program.Expect(
      seen.entries[0] == 4 && seen.entries[1] == 1 && seen.entries[2] == 2 && seen.entries[3] == 3,
      "the legacy barrier's order is not 4 1 2 3");
  program.Ok(cudaStreamDestroy(first));
  program.Ok(cudaStreamDestroy(second));
  program.Ok(cudaStreamDestroy(free_running));
  program.Ok(cudaFree(journal));
  program.Ok(cudaFreeHost(flag));
}

// An event orders two streams that nothing else orders.
void EventAcrossStreams(Program& program) {
  uint32_t* flag;
  Journal* journal;
  cudaStream_t before, after;
  cudaEvent_t event;
  program.Ok(cudaHostAlloc(&flag, sizeof(*flag), cudaHostAllocMapped));
  program.Ok(cudaMalloc(&journal, sizeof(*journal)));
  program.Ok(cudaMemset(journal, 0, sizeof(*journal)));
  program.Ok(cudaStreamCreateWithFlags(&before, cudaStreamNonBlocking));
  program.Ok(cudaStreamCreateWithFlags(&after, cudaStreamNonBlocking));
  program.Ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  program.Ok(cudaDeviceSynchronize());
  *flag = 0;

  WaitThenAppend<<<1, 1, 0, before>>>(flag, journal, 1);
  program.Ok(cudaEventRecord(event, before));
  program.Ok(cudaStreamWaitEvent(after, event, 0));
  Append<<<1, 1, 0, after>>>(journal, 2);
  program.Expect(cudaEventQuery(event) == cudaErrorNotReady, "the event is done too early");
  program.Expect(cudaStreamQuery(after) == cudaErrorNotReady, "the stream did not wait");
  *reinterpret_cast<volatile uint32_t*>(flag) = 1;
  program.Ok(cudaEventSynchronize(event));
  program.Ok(cudaStreamSynchronize(after));

  Journal seen;
  program.Ok(cudaMemcpy(&seen, journal, sizeof(seen), cudaMemcpyDeviceToHost));
  program.Expect(seen.count == 2 && seen.entries[0] == 1 && seen.entries[1] == 2,
                 "the event did not order the streams");
  program.Ok(cudaEventDestroy(event));
  program.Ok(cudaStreamDestroy(before));
  program.Ok(cudaStreamDestroy(after));
  program.Ok(cudaFree(journal));
  program.Ok(cudaFreeHost(flag));
}

// Copies in, kernels and copies out, on four streams at once.
int Pipeline(Program& program, int n) {
  constexpr int kStreams = 4;
  constexpr int kRounds = 3;
  const size_t size_bytes = n * sizeof(float);
  cudaStream_t streams[kStreams];
  float* host[kStreams];
  float* device[kStreams];
  for (int s = 0; s < kStreams; ++s) {
    program.Ok(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking));
    program.Ok(cudaMallocHost(&host[s], size_bytes));
    program.Ok(cudaMalloc(&device[s], size_bytes));
    for (int i = 0; i < n; ++i) host[s][i] = static_cast<float>(i + s);
  }
  for (int round = 0; round < kRounds; ++round) {
    for (int s = 0; s < kStreams; ++s) {
      program.Ok(
          cudaMemcpyAsync(device[s], host[s], size_bytes, cudaMemcpyHostToDevice, streams[s]));
      Scale<<<(n + 127) / 128, 128, 0, streams[s]>>>(device[s], n, 2.0f);
      program.Ok(
          cudaMemcpyAsync(host[s], device[s], size_bytes, cudaMemcpyDeviceToHost, streams[s]));
    }
  }
  program.Ok(cudaGetLastError());
  for (int s = 0; s < kStreams; ++s) {
    program.Ok(cudaStreamSynchronize(streams[s]));
    for (int i = 0; i < n; ++i) {
      program.Expect(host[s][i] == static_cast<float>((i + s) << kRounds), "wrong element");
    }
    program.Ok(cudaStreamDestroy(streams[s]));
    program.Ok(cudaFreeHost(host[s]));
    program.Ok(cudaFree(device[s]));
  }
  return kStreams;
}

int main(int argc, char** argv) {
  Program program("streams");
  LegacyBarrier(program);
  EventAcrossStreams(program);
  const int n = static_cast<int>(NumberArgument(argc, argv, 5'000));
  const int streams = Pipeline(program, n);
  return program.Finish("streams=%d elements=%d", streams, n);
}
