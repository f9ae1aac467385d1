// SPDX-License-Identifier: Apache-2.0
// Linear memory read through a texture that is larger than what it lies in, as programs make it that take the
// padded size of a transform for the size of its data: the halves of a real transform's spectrum are
// multiplied with each other's mirror. What lies behind the data is never read.
#include <vector>

#include "check.h"

constexpr int kRows = 64;
constexpr int kColumns = 64;
constexpr int kData = kRows * kColumns;
constexpr size_t kTextureBytes = size_t{16} << 20;  // of 32 KiB

__global__ void MultiplyMirrored(float2* out, cudaTextureObject_t spectrum) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= kData) return;
  const int row = at / kColumns, column = at % kColumns;
  const int mirror = (kRows - row) % kRows * kColumns + (kColumns - column) % kColumns;
  const float2 a = tex1Dfetch<float2>(spectrum, at);
  const float2 b = tex1Dfetch<float2>(spectrum, mirror);
  out[at] = make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

int main() {
  Program program("spectrum");
  std::vector<float2> data(kData);
  for (int i = 0; i < kData; ++i) data[i] = make_float2(i % 17 - 8.0f, i % 29 * 0.5f);
  float2 *spectrum = nullptr, *out = nullptr;
  program.Ok(cudaMalloc(&spectrum, kData * sizeof(float2)));
  program.Ok(cudaMalloc(&out, kData * sizeof(float2)));
  program.Ok(cudaMemcpy(spectrum, data.data(), kData * sizeof(float2), cudaMemcpyHostToDevice));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = spectrum;
  resource.res.linear.sizeInBytes = kTextureBytes;
  resource.res.linear.desc = cudaCreateChannelDesc<float2>();
  cudaTextureDesc sampler = {};
  sampler.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture = 0;
  program.Ok(cudaCreateTextureObject(&texture, &resource, &sampler, nullptr));
  MultiplyMirrored<<<kData / 256, 256>>>(out, texture);
  program.Ok(cudaGetLastError());
  std::vector<float2> seen(kData);
  program.Ok(cudaMemcpy(seen.data(), out, kData * sizeof(float2), cudaMemcpyDeviceToHost));
  for (int at = 0; at < kData; ++at) {
    const int row = at / kColumns, column = at % kColumns;
    const float2 a = data[at];
    const float2 b = data[(kRows - row) % kRows * kColumns + (kColumns - column) % kColumns];
    program.Expect(seen[at].x == a.x * b.x - a.y * b.y && seen[at].y == a.x * b.y + a.y * b.x,
                   "another product");
  }
  program.Ok(cudaDestroyTextureObject(texture));
  return program.Finish("products=%d", kData);
}
