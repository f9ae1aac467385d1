// SPDX-License-Identifier: Apache-2.0
// Device mathematics against the host's, single and double precision, and the fast approximations.
#include <cmath>
#include <cstring>
#include <vector>

#include "check.h"

constexpr int kSamples = 64;

struct Single {
  float sine, cosine, tangent, exponential, logarithm, square_root, power, hyperbolic, error,
      reciprocal_root, fused, remainder, arctangent, cube_root, rounded, divided;
};
struct Double {
  double sine, exponential, logarithm, square_root, power, error, fused, arctangent, rounded,
      divided;
};
struct Fast {
  float sine, cosine, exponential, logarithm, divided, power;
};

// Positive arguments, from small to large enough to need argument reduction.
__host__ __device__ inline double Argument(int i) { return 0.013 + 0.37 * i; }

template <typename Real>
__host__ __device__ Real Small(Real x) {
  return x / 12;
}

__host__ __device__ Single SingleOf(float x) {
  const float small = Small(x);
  return {sinf(x),      cosf(x),      tanf(small),     expf(small),
          logf(x),      sqrtf(x),     powf(x, 1.7f),   tanhf(small),
          erff(small),  1 / sqrtf(x), fmaf(x, x, -x),  fmodf(x, 0.7f),
          atan2f(x, 2), cbrtf(x),     rintf(x * 3.3f), 1 / x};
}
__host__ __device__ Double DoubleOf(double x) {
  const double small = Small(x);
  return {sin(x),     exp(small),    log(x),  sqrt(x),       pow(x, 1.7),
          erf(small), fma(x, x, -x), atan(x), rint(x * 3.3), 1 / x};
}

__global__ void Compute(Single* single, Double* wide, Fast* fast) {
  const int i = threadIdx.x;
  const double x = Argument(i);
  single[i] = SingleOf(static_cast<float>(x));
  wide[i] = DoubleOf(x);
  const float f = static_cast<float>(x);
  const float small = Small(f);
  fast[i] = {__sinf(small), __cosf(small),    __expf(small),
             __logf(f),     __fdividef(f, 3), __powf(f, 1.3f)};
}

template <typename Struct, typename Real>
void Compare(Program& program, const Struct& device, const Struct& host, Real tolerance,
             const char* what) {
  constexpr size_t kCount = sizeof(Struct) / sizeof(Real);
  Real a[kCount], b[kCount];
  std::memcpy(a, &device, sizeof(a));
  std::memcpy(b, &host, sizeof(b));
  for (size_t k = 0; k < kCount; ++k) {
    const Real difference = std::fabs(a[k] - b[k]);
    const bool close = difference <= tolerance * std::fmax(Real(1), std::fabs(b[k]));
    if (!close)
      std::printf("%s field %zu: device %.9g, host %.9g\n", what, k, double(a[k]), double(b[k]));
    program.Expect(close, what);
  }
}

int main() {
  Program program("mathfuncs");
  Single* single;
  Double* wide;
  Fast* fast;
  program.Ok(cudaMalloc(&single, kSamples * sizeof(Single)));
  program.Ok(cudaMalloc(&wide, kSamples * sizeof(Double)));
  program.Ok(cudaMalloc(&fast, kSamples * sizeof(Fast)));
  Compute<<<1, kSamples>>>(single, wide, fast);
  program.Ok(cudaGetLastError());
  std::vector<Single> host_single(kSamples);
  std::vector<Double> host_wide(kSamples);
  std::vector<Fast> host_fast(kSamples);
  program.Ok(
      cudaMemcpy(host_single.data(), single, kSamples * sizeof(Single), cudaMemcpyDeviceToHost));
  program.Ok(cudaMemcpy(host_wide.data(), wide, kSamples * sizeof(Double), cudaMemcpyDeviceToHost));
  program.Ok(cudaMemcpy(host_fast.data(), fast, kSamples * sizeof(Fast), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kSamples; ++i) {
    const double x = Argument(i);
    const float f = static_cast<float>(x);
    const float small = Small(f);
    Compare(program, host_single[i], SingleOf(f), 2e-6f, "single precision");
    Compare(program, host_wide[i], DoubleOf(x), 1e-14, "double precision");
    const Fast expected{sinf(small), cosf(small), expf(small), logf(f), f / 3, powf(f, 1.3f)};
    Compare(program, host_fast[i], expected, 1e-5f, "fast approximation");
  }
  program.Ok(cudaFree(single));
  program.Ok(cudaFree(wide));
  program.Ok(cudaFree(fast));
  return program.Finish("samples=%d", kSamples);
}
