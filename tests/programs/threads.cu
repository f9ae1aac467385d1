// SPDX-License-Identifier: Apache-2.0
// Many threads on one context: each with its own stream, memory and events; legacy default stream
// barriers between them; events recorded in one thread and waited for in another; memory freed
// while a kernel still uses it; pageable memory that is overwritten at once.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "check.h"

__global__ void Add(int* values, int n, int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] += by;
}

constexpr int kThreads = 6;
constexpr int kRounds = 20;
constexpr int kCount = 4000;

void OwnStreams(Program& program) {
  std::atomic<int> wrong{0};
  const auto work = [&wrong](int me) {
    const auto ok = [&wrong](cudaError_t result) { wrong += result != cudaSuccess; };
    cudaStream_t stream;
    ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int round = 0; round < kRounds; ++round) {
      int* values = nullptr;
      cudaEvent_t done;
      std::vector<int> host(kCount, me);
      ok(cudaMalloc(&values, kCount * sizeof(int)));
      ok(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
      ok(cudaMemcpyAsync(values, host.data(), kCount * sizeof(int), cudaMemcpyHostToDevice,
                         stream));
      for (int& value : host) value = -1;  // the copy has already taken what it needs
      Add<<<(kCount + 127) / 128, 128, 0, stream>>>(values, kCount, round);
      ok(cudaEventRecord(done, stream));
      ok(cudaMemcpyAsync(host.data(), values, kCount * sizeof(int), cudaMemcpyDeviceToHost,
                         stream));
      ok(cudaEventSynchronize(done));
      ok(cudaStreamSynchronize(stream));
      for (int value : host) wrong += value != me + round;
      ok(cudaEventDestroy(done));
      ok(cudaFree(values));
    }
    ok(cudaStreamDestroy(stream));
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  program.Expect(wrong == 0, "a thread got a wrong result or an error");
}

// A chain through all threads: each waits for the event that the one before it recorded.
void EventsOfOtherThreads(Program& program) {
  int* values = nullptr;
  program.Ok(cudaMalloc(&values, kCount * sizeof(int)));
  program.Ok(cudaMemset(values, 0, kCount * sizeof(int)));
  program.Ok(cudaDeviceSynchronize());
  std::vector<cudaEvent_t> events(kThreads);
  std::vector<cudaStream_t> streams(kThreads);
  for (cudaEvent_t& event : events) {
    program.Ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  for (cudaStream_t& stream : streams) {
    program.Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  std::mutex mutex;
  std::condition_variable turn_came;
  int turn = 0;
  std::atomic<int> wrong{0};
  const auto work = [&](int me) {
    std::unique_lock lock(mutex);
    turn_came.wait(lock, [&] { return turn == me; });
    if (me > 0) wrong += cudaStreamWaitEvent(streams[me], events[me - 1], 0) != cudaSuccess;
    for (int i = 0; i < 10; ++i) {
      Add<<<(kCount + 127) / 128, 128, 0, streams[me]>>>(values, kCount, 1);
    }
    wrong += cudaEventRecord(events[me], streams[me]) != cudaSuccess;
    ++turn;
    turn_came.notify_all();
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  program.Ok(cudaEventSynchronize(events.back()));
  program.Expect(wrong == 0, "a thread got an error");
  std::vector<int> host(kCount);
  program.Ok(cudaMemcpy(host.data(), values, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  for (int value : host) {
    program.Expect(value == 10 * kThreads, "work of another thread is missing");
  }
  for (cudaStream_t stream : streams) program.Ok(cudaStreamDestroy(stream));
  for (cudaEvent_t event : events) program.Ok(cudaEventDestroy(event));
  program.Ok(cudaFree(values));
}

// The legacy default stream is one barrier for the blocking streams of all threads.
void LegacyBarrier(Program& program) {
  int* values = nullptr;
  program.Ok(cudaMalloc(&values, kCount * sizeof(int)));
  for (int round = 0; round < 10; ++round) {
    program.Ok(cudaMemset(values, 0, kCount * sizeof(int)));
    std::thread([values] {
      cudaStream_t blocking;
      cudaStreamCreate(&blocking);
      for (int i = 0; i < 20; ++i) {
        Add<<<(kCount + 127) / 128, 128, 0, blocking>>>(values, kCount, 1);
      }
      cudaStreamDestroy(blocking);  // its work goes on
    }).join();
    Add<<<(kCount + 127) / 128, 128>>>(values, kCount, 100);
    std::vector<int> host(kCount);
    program.Ok(cudaMemcpy(host.data(), values, kCount * sizeof(int), cudaMemcpyDeviceToHost));
    for (int value : host) program.Expect(value == 120, "the default stream was no barrier");
  }
  program.Ok(cudaFree(values));
}

// cudaFree waits for the kernels that may use the memory.
void FreeInUse(Program& program) {
  for (int round = 0; round < 20; ++round) {
    int* values = nullptr;
    int* next = nullptr;
    program.Ok(cudaMalloc(&values, kCount * sizeof(int)));
    program.Ok(cudaMemset(values, 0, kCount * sizeof(int)));
    for (int i = 0; i < 50; ++i) Add<<<(kCount + 127) / 128, 128>>>(values, kCount, 1);
    program.Ok(cudaFree(values));
    program.Ok(cudaMalloc(&next, kCount * sizeof(int)));
    program.Ok(cudaMemset(next, 0, kCount * sizeof(int)));
    std::vector<int> host(kCount);
    program.Ok(cudaMemcpy(host.data(), next, kCount * sizeof(int), cudaMemcpyDeviceToHost));
    for (int value : host) program.Expect(value == 0, "freed memory was still written");
    program.Ok(cudaFree(next));
  }
}

// Questions that a thread may ask that never made a context current: about addresses and events.
void ThreadsWithoutContext(Program& program) {
  int* pinned = nullptr;
  cudaEvent_t event;
  program.Ok(cudaMallocHost(&pinned, sizeof(int)));
  program.Ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  program.Ok(cudaEventRecord(event, nullptr));
  program.Ok(cudaDeviceSynchronize());
  const auto elsewhere = [](auto call) {
    cudaError_t result = cudaErrorUnknown;
    std::thread([&] { result = call(); }).join();
    return result;
  };
  cudaPointerAttributes attributes;
  int plain = 0;
  program.Ok(elsewhere([&] { return cudaPointerGetAttributes(&attributes, pinned); }));
  program.Expect(attributes.type == cudaMemoryTypeHost, "pinned memory is not known elsewhere");
  program.Ok(elsewhere([&] { return cudaPointerGetAttributes(&attributes, &plain); }));
  program.Expect(attributes.type == cudaMemoryTypeUnregistered, "plain memory is known elsewhere");
  program.Ok(elsewhere([&] { return cudaEventQuery(event); }));
  program.Ok(elsewhere([&] { return cudaEventSynchronize(event); }));
  program.Ok(elsewhere([&] { return cudaEventDestroy(event); }));
  program.Ok(elsewhere([&] { return cudaFreeHost(pinned); }));
}

int main() {
  Program program("threads");
  ThreadsWithoutContext(program);
  OwnStreams(program);
  EventsOfOtherThreads(program);
  LegacyBarrier(program);
  FreeInUse(program);
  return program.Finish("threads=%d rounds=%d", kThreads, kRounds);
}
