// SPDX-License-Identifier: Apache-2.0
// Wrong calls get CUDA's own error, break nothing, and the program goes on.
#include "check.h"

__global__ void Write(int* value, int what) { *value = what; }

int main() {
  Program program("errors");
  int* value;
  program.Ok(cudaMalloc(&value, sizeof(int)));

  Write<<<1, 2048>>>(value, 1);  // more threads than a block may have
  program.Fails(cudaPeekAtLastError(), cudaErrorInvalidValue);
  Write<<<0, 1>>>(value, 1);
  program.Fails(cudaGetLastError(), cudaErrorInvalidValue);
  Write<<<dim3(1, 1 << 17), 1>>>(value, 1);
  program.Fails(cudaGetLastError(), cudaErrorInvalidValue);
  Write<<<1, 1, 1 << 20>>>(value, 1);  // more shared memory than there is
  program.Fails(cudaGetLastError(), cudaErrorInvalidValue);
  program.Expect(cudaGetLastError() == cudaSuccess, "the last error was not taken back");

  program.Fails(cudaSetDevice(1000), cudaErrorInvalidDevice);
  program.Fails(cudaFree(reinterpret_cast<void*>(0x1234)), cudaErrorInvalidValue);
  program.Fails(cudaMemset(reinterpret_cast<void*>(0x1234), 0, 16), cudaErrorInvalidValue);
  int host = 0;
  program.Fails(
      cudaMemcpy(reinterpret_cast<void*>(0x1234), &host, sizeof(host), cudaMemcpyHostToDevice),
      cudaErrorInvalidValue);
  void* nothing = value;
  program.Ok(cudaMalloc(&nothing, 0));
  program.Expect(nothing == nullptr, "an empty allocation has an address");
  program.Ok(cudaFree(nullptr));
  program.Fails(cudaFuncSetAttribute(Write, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20),
                cudaErrorInvalidValue);

  Write<<<1, 1>>>(value, 99);
  program.Ok(cudaGetLastError());
  program.Ok(cudaMemcpy(&host, value, sizeof(host), cudaMemcpyDeviceToHost));
  program.Expect(host == 99, "work after the errors failed");
  program.Ok(cudaFree(value));
  program.Fails(cudaFree(value), cudaErrorInvalidValue);
  return program.Finish("checked=12");
}
