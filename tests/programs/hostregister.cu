// SPDX-License-Identifier: Apache-2.0
// Host memory that the program made itself, registered with CUDA: from malloc, from mmap, parts of
// a larger range; used by kernels and by asynchronous copies, and afterwards still the program's.
#include <sys/mman.h>

#include <cstdlib>
#include <vector>

#include "check.h"

__global__ void Add(int* values, int n, int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] += by;
}

void UseMapped(Program& program, int* host, int n) {
  for (int i = 0; i < n; ++i) host[i] = i;
  program.Ok(cudaHostRegister(host, n * sizeof(int), cudaHostRegisterMapped));
  for (int i = 0; i < n; ++i) program.Expect(host[i] == i, "registering changed the contents");
  int* device = nullptr;
  program.Ok(cudaHostGetDevicePointer(&device, host, 0));
  Add<<<(n + 255) / 256, 256>>>(device, n, 1000);
  program.Ok(cudaDeviceSynchronize());
  for (int i = 0; i < n; ++i) program.Expect(host[i] == i + 1000, "the device's write is missing");

  // The host's next write is seen, too.
  for (int i = 0; i < n; ++i) host[i] = -i;
  Add<<<(n + 255) / 256, 256>>>(device, n, 7);
  program.Ok(cudaDeviceSynchronize());
  for (int i = 0; i < n; ++i) program.Expect(host[i] == 7 - i, "the host's write is missing");
  program.Ok(cudaHostUnregister(host));
  for (int i = 0; i < n; ++i) program.Expect(host[i] == 7 - i, "unregistering lost the contents");
}

void UseForCopies(Program& program, int* host, int n) {
  int* device = nullptr;
  cudaStream_t stream;
  program.Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  program.Ok(cudaMalloc(&device, n * sizeof(int)));
  program.Ok(cudaHostRegister(host, n * sizeof(int), cudaHostRegisterDefault));
  for (int i = 0; i < n; ++i) host[i] = 3 * i;
  program.Ok(cudaMemcpyAsync(device, host, n * sizeof(int), cudaMemcpyHostToDevice, stream));
  Add<<<(n + 255) / 256, 256, 0, stream>>>(device, n, 5);
  program.Ok(cudaMemcpyAsync(host, device, n * sizeof(int), cudaMemcpyDeviceToHost, stream));
  program.Ok(cudaStreamSynchronize(stream));
  for (int i = 0; i < n; ++i) program.Expect(host[i] == 3 * i + 5, "wrong element after copies");
  program.Ok(cudaHostUnregister(host));
  program.Ok(cudaFree(device));
  program.Ok(cudaStreamDestroy(stream));
}

int main() {
  Program program("hostregister");
  constexpr int kCount = 50'000;
  void* pages = mmap(nullptr, kCount * sizeof(int), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  program.Expect(pages != MAP_FAILED, "mmap failed");
  UseMapped(program, static_cast<int*>(pages), kCount);
  UseForCopies(program, static_cast<int*>(pages), kCount);

  int* heap = static_cast<int*>(std::malloc(kCount * sizeof(int)));
  UseMapped(program, heap, kCount);
  UseForCopies(program, heap, kCount);
  std::free(heap);

  // Two parts of one vector, and one of them a second time.
  std::vector<int> whole(3 * 8192, 1);
  program.Ok(cudaHostRegister(whole.data(), 8192 * sizeof(int), 0));
  program.Fails(cudaHostRegister(whole.data(), 8192 * sizeof(int), 0),
                cudaErrorHostMemoryAlreadyRegistered);
  program.Ok(cudaHostUnregister(whole.data()));
  program.Fails(cudaHostUnregister(whole.data()), cudaErrorHostMemoryNotRegistered);
  program.Expect(whole[0] == 1 && whole.back() == 1, "the vector changed");
  munmap(pages, kCount * sizeof(int));
  return program.Finish("elements=%d", kCount);
}
