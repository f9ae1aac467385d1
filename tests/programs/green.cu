// SPDX-License-Identifier: Apache-2.0
// A green context under the CUDA runtime, as PyTorch and its friends use one: made by the driver,
// current for a while, its default stream and streams of its own beside the primary context's.
#include <cuda.h>

#include <vector>

#include "check.h"

constexpr int kCount = 1 << 16;

__global__ void AddOne(float* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] += 1;
}

int main() {
  Program program("green");
  const auto ok = [&](CUresult result) {
    const char* name = "an unknown error";
    if (result != CUDA_SUCCESS) cuGetErrorName(result, &name);
    program.Expect(result == CUDA_SUCCESS, name);
    if (result != CUDA_SUCCESS) std::exit(program.Finish("the driver says %s", name));
  };
  float *values, *copy;
  program.Ok(cudaMalloc(&values, kCount * sizeof(float)));
  program.Ok(cudaMalloc(&copy, kCount * sizeof(float)));
  program.Ok(cudaMemset(values, 0, kCount * sizeof(float)));
  const auto add = [&](cudaStream_t stream) {
    AddOne<<<(kCount + 255) / 256, 256, 0, stream>>>(values, kCount);
    program.Ok(cudaGetLastError());
  };
  add(nullptr);

  CUdevResource all, part;
  unsigned count = 1;
  ok(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  ok(cuDevSmResourceSplitByCount(&part, &count, &all, nullptr, 0, all.sm.minSmPartitionSize));
  CUdevResourceDesc description;
  ok(cuDevResourceGenerateDesc(&description, &part, 1));
  CUgreenCtx green;
  ok(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  CUcontext context, popped;
  ok(cuCtxFromGreenCtx(&context, green));

  cudaEvent_t event;
  program.Ok(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  program.Ok(cudaEventRecord(event, nullptr));
  ok(cuCtxPushCurrent(context));
  program.Ok(cudaStreamWaitEvent(nullptr, event, 0));
  for (int i = 0; i < 100; ++i) add(nullptr);
  cudaStream_t stream;
  program.Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  program.Ok(cudaStreamSynchronize(nullptr));
  add(stream);
  program.Ok(
      cudaMemcpyAsync(copy, values, kCount * sizeof(float), cudaMemcpyDeviceToDevice, stream));
  program.Ok(cudaStreamSynchronize(stream));
  program.Ok(cudaStreamDestroy(stream));
  program.Ok(cudaEventRecord(event, nullptr));
  ok(cuCtxPopCurrent(&popped));
  program.Expect(popped == context, "the context that was pushed");
  program.Ok(cudaStreamWaitEvent(nullptr, event, 0));
  add(nullptr);

  CUstream made;
  ok(cuGreenCtxStreamCreate(&made, green, CU_STREAM_NON_BLOCKING, 0));
  program.Ok(cudaDeviceSynchronize());
  add(made);
  program.Ok(cudaStreamSynchronize(made));
  std::vector<float> got(kCount);
  program.Ok(cudaMemcpy(got.data(), values, kCount * sizeof(float), cudaMemcpyDeviceToHost));
  bool equal = true;
  for (float value : got) equal &= value == 104;
  program.Expect(equal, "what was added in the end");
  program.Ok(cudaMemcpy(got.data(), copy, kCount * sizeof(float), cudaMemcpyDeviceToHost));
  equal = true;
  for (float value : got) equal &= value == 102;
  program.Expect(equal, "what was added in the green context");
  program.Ok(cudaStreamDestroy(made));
  ok(cuGreenCtxDestroy(green));
  add(nullptr);
  program.Ok(cudaDeviceSynchronize());
  return program.Finish("values=%d", kCount);
}
