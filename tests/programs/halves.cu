// SPDX-License-Identifier: Apache-2.0
// Numbers of 16 and 8 bits: their functions, atomics, conversions and what CUDA's headers make of them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>

#include "check.h"

constexpr int kResults = 24;

__global__ void Functions(float x, float y, float* results) {
  const half2 a = __floats2half2_rn(x, y);
  const __nv_bfloat162 b = __floats2bfloat162_rn(x, y);
  int n = 0;
  const auto keep = [&](float value) { results[n++] = value; };
  keep(__high2float(h2exp(a)));
  keep(__low2float(h2log(a)));
  keep(__high2float(h2rcp(a)));
  keep(__low2float(h2rsqrt(a)));
  keep(__high2float(h2sin(a)));
  keep(__low2float(h2sqrt(a)));
  keep(__half2float(hexp(__low2half(a))));
  keep(__half2float(hcos(__high2half(a))));
  keep(__half2float(__hdiv(__low2half(a), __high2half(a))));
  keep(__high2float(h2exp(b)));
  keep(__low2float(h2log(b)));
  keep(__high2float(h2sqrt(b)));
  keep(__low2float(__hgt2(a, __float2half2_rn(1.75f))));
  keep(static_cast<float>(__heq2_mask(a, __floats2half2_rn(x, 0)) & 0xffff));
  // 8 bits: both are exact there.
  keep(static_cast<float>(__nv_fp8_e4m3(x)));
  keep(static_cast<float>(__nv_fp8_e5m2(y)));
  keep(static_cast<float>(__nv_fp8_e4m3(1000.0f)));
  const __nv_fp8x2_e4m3 pair(make_float2(x, y));
  keep(static_cast<float2>(pair).y);
  // Parts of 32 bits.
  keep(static_cast<float>(__vabsdiffu4(0x05030201, 0x01020304)));
  keep(static_cast<float>(__vsadu4(0x05030201, 0x01020304)));
}

__global__ void Atomics(half2* pair, __nv_bfloat162* other, float4* vector, half* one) {
  atomicAdd(pair, __floats2half2_rn(1, 2));
  atomicAdd(other, __floats2bfloat162_rn(2, 1));
  atomicAdd(vector, make_float4(1, 2, 3, 4));
  atomicAdd(one, __float2half(1));
}

int main() {
  Program program("halves");
  float* results = nullptr;
  program.Ok(cudaMallocManaged(&results, 256));
  constexpr float kX = 1.5f, kY = 2.0f;
  Functions<<<1, 1>>>(kX, kY, results);
  program.Ok(cudaDeviceSynchronize());
  const float wanted[] = {std::exp(kY),
                          std::log(kX),
                          1 / kY,
                          1 / std::sqrt(kX),
                          std::sin(kY),
                          std::sqrt(kX),
                          std::exp(kX),
                          std::cos(kY),
                          kX / kY,
                          std::exp(kY),
                          std::log(kX),
                          std::sqrt(kY),
                          0,
                          0xffff,
                          kX,
                          kY,
                          448,
                          kY,
                          static_cast<float>(0x04010103),
                          9};
  static_assert(sizeof(wanted) / sizeof(float) <= kResults);
  for (size_t i = 0; i < sizeof(wanted) / sizeof(float); ++i) {
    // bfloat16 has eight bits.
    if (std::fabs(results[i] - wanted[i]) <= std::fabs(wanted[i]) / 128) continue;
    std::printf("result %zu is %g, not %g\n", i, results[i], wanted[i]);
    program.Expect(false, "a function");
  }

  program.Ok(cudaMemset(results, 0, 256));
  Atomics<<<2, 32>>>(reinterpret_cast<half2*>(results),
                     reinterpret_cast<__nv_bfloat162*>(results + 4),
                     reinterpret_cast<float4*>(results + 8), reinterpret_cast<half*>(results + 16));
  program.Ok(cudaDeviceSynchronize());
  const half2 pair = *reinterpret_cast<half2*>(results);
  program.Expect(__low2float(pair) == 64 && __high2float(pair) == 128, "pairs of halves");
  const __nv_bfloat162 other = *reinterpret_cast<__nv_bfloat162*>(results + 4);
  program.Expect(__low2float(other) == 128 && __high2float(other) == 64, "pairs of bfloat16");
  program.Expect(results[8] == 64 && results[11] == 256, "vectors of floats");
  program.Expect(__half2float(*reinterpret_cast<half*>(results + 16)) == 64, "halves");
  return program.Finish("x=%g", kX);
}
