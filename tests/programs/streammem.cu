// SPDX-License-Identifier: Apache-2.0
// Stream memory operations: the stream writes words and waits for words, on the device and in host
// memory, in order with kernels.
#include <cuda.h>

#include "check.h"

__global__ void Store(int* to, const volatile unsigned* from) { *to = static_cast<int>(*from); }

int main() {
  Program program("streammem");
  const auto driver = [&](CUresult result, const char* what) {
    program.Expect(result == CUDA_SUCCESS, what);
  };
  unsigned* words = nullptr;  // of the device
  unsigned* host = nullptr;   // mapped
  int* seen = nullptr;
  program.Ok(cudaMalloc(&words, 64));
  program.Ok(cudaMemset(words, 0, 64));
  program.Ok(cudaDeviceSynchronize());  // the streams below do not wait for the default stream
  program.Ok(cudaHostAlloc(&host, 64, cudaHostAllocMapped));
  program.Ok(cudaMalloc(&seen, 4 * sizeof(int)));
  volatile unsigned* const flags = host;
  for (int i = 0; i < 16; ++i) flags[i] = 0;
  cudaStream_t stream, other;
  program.Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  program.Ok(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  const auto on_device = reinterpret_cast<CUdeviceptr>(words);
  const auto on_host = reinterpret_cast<CUdeviceptr>(host);

  driver(cuStreamWriteValue32(stream, on_device, 11, 0), "cuStreamWriteValue32");
  Store<<<1, 1, 0, stream>>>(&seen[0], &words[0]);
  driver(cuStreamWriteValue64(stream, on_device + 8, 0x1'0000'0002, 0), "cuStreamWriteValue64");
  Store<<<1, 1, 0, stream>>>(&seen[1], &words[3]);
  driver(cuStreamWriteValue32(stream, on_host, 21, 0), "cuStreamWriteValue32 to the host");
  program.Ok(cudaStreamSynchronize(stream));
  program.Expect(flags[0] == 21, "the host does not see the stream's word");

  // One stream waits for a word that another writes, which itself waits for the host.
  driver(cuStreamWaitValue32(stream, on_device + 32, 5, CU_STREAM_WAIT_VALUE_EQ), "wait for 5");
  Store<<<1, 1, 0, stream>>>(&seen[2], &words[8]);
  driver(cuStreamWaitValue32(other, on_host + 4, 1, CU_STREAM_WAIT_VALUE_GEQ), "wait for the host");
  driver(cuStreamWriteValue32(other, on_device + 32, 5, 0), "write 5");
  program.Expect(cudaStreamQuery(stream) == cudaErrorNotReady, "the stream did not wait");
  flags[1] = 1;
  program.Ok(cudaStreamSynchronize(stream));
  program.Ok(cudaStreamSynchronize(other));

  CUstreamBatchMemOpParams batch[3] = {};
  batch[0].waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32, on_device + 32, {5}, 0, 0};
  batch[1].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, on_device + 36, {6}, 0, 0};
  batch[2].writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32, on_host + 8, {7}, 0, 0};
  driver(cuStreamBatchMemOp(stream, 3, batch, 0), "cuStreamBatchMemOp");
  Store<<<1, 1, 0, stream>>>(&seen[3], &words[9]);
  program.Ok(cudaStreamSynchronize(stream));
  program.Expect(flags[2] == 7, "the batch's word is missing");
  int values[4];
  program.Ok(cudaMemcpy(values, seen, sizeof(values), cudaMemcpyDeviceToHost));
  return program.Finish("values=%d,%d,%d,%d", values[0], values[1], values[2], values[3]);
}
