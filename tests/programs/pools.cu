// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory: cudaMallocAsync and cudaFreeAsync, reuse in a stream and across streams,
// pools and their numbers, a pool of the program's own.
#include <vector>

#include "check.h"

__global__ void Fill(int* values, int n, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = value;
}

__global__ void Sum(const int* values, int n, unsigned long long* sum) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(sum, static_cast<unsigned long long>(values[i]));
}

int main() {
  Program program("pools");
  constexpr int kCount = 100'000;
  constexpr unsigned kBlocks = (kCount + 255) / 256;
  cudaStream_t stream, other;
  program.Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  program.Ok(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  unsigned long long* sum = nullptr;
  program.Ok(cudaMalloc(&sum, sizeof(*sum)));
  program.Ok(cudaMemset(sum, 0, sizeof(*sum)));
  program.Ok(cudaDeviceSynchronize());  // the streams do not wait for the default stream

  // Each round's memory is freed while its kernels may still be waiting.
  unsigned long long expected = 0;
  for (int round = 1; round <= 50; ++round) {
    int* values = nullptr;
    program.Ok(cudaMallocAsync(&values, kCount * sizeof(int), stream));
    Fill<<<kBlocks, 256, 0, stream>>>(values, kCount, round);
    Sum<<<kBlocks, 256, 0, stream>>>(values, kCount, sum);
    program.Ok(cudaFreeAsync(values, stream));
    expected += static_cast<unsigned long long>(round) * kCount;
  }
  program.Ok(cudaStreamSynchronize(stream));
  unsigned long long total = 0;
  program.Ok(cudaMemcpy(&total, sum, sizeof(total), cudaMemcpyDeviceToHost));
  program.Expect(total == expected, "wrong sum");

  // Made in one stream, used and freed in another behind an event.
  cudaEvent_t event;
  program.Ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  int* shared = nullptr;
  program.Ok(cudaMallocAsync(&shared, kCount * sizeof(int), stream));
  Fill<<<kBlocks, 256, 0, stream>>>(shared, kCount, 9);
  program.Ok(cudaEventRecord(event, stream));
  program.Ok(cudaStreamWaitEvent(other, event, 0));
  std::vector<int> host(kCount);
  program.Ok(
      cudaMemcpyAsync(host.data(), shared, kCount * sizeof(int), cudaMemcpyDeviceToHost, other));
  program.Ok(cudaFreeAsync(shared, other));
  program.Ok(cudaStreamSynchronize(other));
  for (int value : host) program.Expect(value == 9, "wrong element across streams");

  // A pool of its own, and what it says about itself.
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = 0;
  cudaMemPool_t pool, standard;
  program.Ok(cudaMemPoolCreate(&pool, &props));
  program.Ok(cudaDeviceGetDefaultMemPool(&standard, 0));
  unsigned long long number = ~0ull;
  program.Ok(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &number));
  int* from_pool = nullptr;
  program.Ok(cudaMallocFromPoolAsync(&from_pool, 1 << 20, pool, stream));
  program.Ok(cudaStreamSynchronize(stream));
  program.Ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &number));
  program.Expect(number >= (1 << 20), "the pool counts less than it gave");
  const unsigned long long used = number;
  program.Ok(cudaFreeAsync(from_pool, stream));
  program.Ok(cudaStreamSynchronize(stream));
  program.Ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &number));
  program.Expect(number == 0, "the pool counts what was freed");
  program.Ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &number));
  program.Expect(number > 0, "the pool gave back what it should keep");
  program.Ok(cudaMemPoolTrimTo(pool, 0));
  program.Ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &number));
  program.Expect(number == 0, "the trimmed pool keeps memory");
  program.Ok(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemHigh, &number));
  program.Expect(number == used, "the pool's peak is another one");

  // The device's current pool can be exchanged, and the plain free takes pool memory, too.
  program.Ok(cudaDeviceSetMemPool(0, pool));
  cudaMemPool_t current;
  program.Ok(cudaDeviceGetMemPool(&current, 0));
  program.Expect(current == pool, "another pool is current");
  program.Ok(cudaMallocAsync(&from_pool, 4096, stream));
  program.Ok(cudaStreamSynchronize(stream));
  program.Ok(cudaFree(from_pool));
  program.Ok(cudaDeviceSetMemPool(0, standard));
  program.Ok(cudaMemPoolDestroy(pool));
  program.Fails(cudaMallocAsync(&from_pool, size_t{1} << 46, stream), cudaErrorMemoryAllocation);
  program.Ok(cudaStreamSynchronize(stream));
  return program.Finish("sum=%llu used=%llu", total, used);
}
