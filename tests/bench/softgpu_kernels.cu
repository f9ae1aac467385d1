// SPDX-License-Identifier: Apache-2.0
// Kernels of the kinds that CUDA's samples are made of, for softgpu_speed.py: what a software GPU needs for them.
//
//   softgpu-kernels NAME [REPEAT]      one line: {"name":…,"wall_s":…,"cpu_s":…,"check":…}
//   softgpu-kernels                    the names
//
// Times are those of the launches, from an idle device to an idle device: all threads of the process. `check` is a hash
// of the result's bytes: the same wherever the same is computed.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/bench/softgpu_program.h"

namespace {

// --- a matrix product through shared memory -------------------------------------------------------------------------
template <class T, int kTile>
__global__ void Multiply(const T* a, const T* b, T* c, int n) {
  __shared__ T tile_a[kTile][kTile];
  __shared__ T tile_b[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * kTile + y, column = blockIdx.x * kTile + x;
  T sum = 0;
  for (int begin = 0; begin < n; begin += kTile) {
    tile_a[y][x] = a[row * n + begin + x];
    tile_b[y][x] = b[(begin + y) * n + column];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kTile; ++k) sum += tile_a[y][k] * tile_b[k][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

template <class T, int kTile>
struct MatrixProduct : Program {
  explicit MatrixProduct(int edge) : n(edge) {
    const size_t count = static_cast<size_t>(n) * n;
    std::vector<T> values(count);
    for (size_t i = 0; i < count; ++i)
      values[i] = static_cast<T>(Hash(static_cast<uint32_t>(i)) % 1000) / 500;
    for (T** at : {&a, &b}) {
      *at = Device<T>(count);
      Ok(cudaMemcpy(*at, values.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    }
    result = c = Device<T>(count);
    size_bytes = count * sizeof(T);
  }
  void Launch() override {
    Multiply<T, kTile><<<dim3(n / kTile, n / kTile), dim3(kTile, kTile)>>>(a, b, c, n);
  }
  int n;
  T *a = nullptr, *b = nullptr, *c = nullptr;
};

// --- bodies that attract each other ---------------------------------------------------------------------------------
__global__ void Attract(const float4* bodies, float4* out, int n) {
  __shared__ float4 tile[256];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 self = bodies[i];
  float3 force = {0, 0, 0};
  for (int begin = 0; begin < n; begin += 256) {
    tile[threadIdx.x] = bodies[begin + threadIdx.x];
    __syncthreads();
#pragma unroll 16
    for (int k = 0; k < 256; ++k) {
      const float4 other = tile[k];
      const float x = other.x - self.x, y = other.y - self.y, z = other.z - self.z;
      const float inverse = rsqrtf(x * x + y * y + z * z + 0.01f);
      const float pull = other.w * inverse * inverse * inverse;
      force.x += x * pull;
      force.y += y * pull;
      force.z += z * pull;
    }
    __syncthreads();
  }
  out[i] = {force.x, force.y, force.z, self.w};
}

struct Bodies : Program {
  Bodies() {
    from = reinterpret_cast<float4*>(DeviceFloats(4 * kCount, -1, 1));
    result = to = Device<float4>(kCount);
    size_bytes = kCount * sizeof(float4);
  }
  void Launch() override { Attract<<<kCount / 256, 256>>>(from, to, kCount); }
  static constexpr int kCount = 4096;
  float4 *from = nullptr, *to = nullptr;
};

// --- option prices: logarithms, exponentials and roots --------------------------------------------------------------
__device__ float NormalBelow(float d) {
  const float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
  const float tail =
      0.39894228f * expf(-0.5f * d * d) *
      (k *
       (0.31938153f + k * (-0.35656378f + k * (1.7814779f + k * (-1.8212559f + k * 1.3302744f)))));
  return d > 0 ? 1.0f - tail : tail;
}

__global__ void Price(const float* stock, const float* strike, const float* years, float* call,
                      float* put, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    const float root = sqrtf(years[i]);
    const float d1 =
        (__logf(stock[i] / strike[i]) + (0.02f + 0.5f * 0.09f) * years[i]) / (0.3f * root);
    const float d2 = d1 - 0.3f * root;
    const float discount = expf(-0.02f * years[i]);
    call[i] = stock[i] * NormalBelow(d1) - strike[i] * discount * NormalBelow(d2);
    put[i] = strike[i] * discount * (1.0f - NormalBelow(d2)) - stock[i] * (1.0f - NormalBelow(d1));
  }
}

struct Options : Program {
  Options() {
    stock = DeviceFloats(kCount, 5, 30);
    strike = DeviceFloats(kCount, 1, 100);
    years = DeviceFloats(kCount, 0.25f, 10);
    result = call = Device<float>(2 * kCount);
    size_bytes = 2 * kCount * sizeof(float);
  }
  void Launch() override { Price<<<480, 128>>>(stock, strike, years, call, call + kCount, kCount); }
  static constexpr int kCount = 1 << 20;
  float *stock = nullptr, *strike = nullptr, *years = nullptr, *call = nullptr;
};

// --- random walks: integers and trigonometry ------------------------------------------------------------------------
__global__ void Walk(float* out, int steps) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  uint32_t x = 123456789u ^ (i * 2654435761u), y = 362436069u + i, z = 521288629u, w = 88675123u,
           v = 5783321u, d = 6615241u;
  float sum = 0;
  for (int step = 0; step < steps; ++step) {
    float uniform[2];
    for (float& u : uniform) {
      const uint32_t t = x ^ (x >> 2);
      x = y, y = z, z = w, w = v;
      v = (v ^ (v << 4)) ^ (t ^ (t << 1));
      d += 362437;
      u = static_cast<float>(d + v) * 2.3283064e-10f + 1.1641532e-10f;
    }
    sum += sqrtf(-2.0f * logf(uniform[0])) * __cosf(6.2831853f * uniform[1]) +
           __sinf(3.0f * uniform[1]);
  }
  out[i] = sum;
}

struct Walks : Program {
  Walks() {
    result = out = Device<float>(kCount);
    size_bytes = kCount * sizeof(float);
  }
  void Launch() override { Walk<<<kCount / 256, 256>>>(out, 200); }
  static constexpr int kCount = 1 << 15;
  float* out = nullptr;
};

// --- sums: barriers and shuffles ------------------------------------------------------------------------------------
__global__ void Sum(const int* in, int* out, int n) {
  __shared__ int part[256];
  int sum = 0;
  for (int i = blockIdx.x * 512 + threadIdx.x; i < n; i += 512 * gridDim.x)
    sum += in[i] + in[i + 256];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 128; half >= 32; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] = sum = sum + part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x < 32) {
    for (int delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(0xffffffffu, sum, delta);
  }
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// Running sums of each block's 1024 numbers.
__global__ void Scan(const int* in, int* out) {
  __shared__ int totals[32];
  const int i = blockIdx.x * 1024 + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int value = in[i];
  for (int delta = 1; delta < 32; delta *= 2) {
    const int below = __shfl_up_sync(0xffffffffu, value, delta);
    if (lane >= delta) value += below;
  }
  if (lane == 31) totals[warp] = value;
  __syncthreads();
  if (warp == 0) {
    int total = totals[lane];
    for (int delta = 1; delta < 32; delta *= 2) {
      const int below = __shfl_up_sync(0xffffffffu, total, delta);
      if (lane >= delta) total += below;
    }
    totals[lane] = total;
  }
  __syncthreads();
  out[i] = value + (warp == 0 ? 0 : totals[warp - 1]);
}

struct Sums : Program {
  explicit Sums(bool running) : runs(running) {
    in = reinterpret_cast<int*>(DeviceBytes(kCount * sizeof(int)));
    const size_t results = runs ? kCount : kBlocks;
    result = out = Device<int>(results);
    size_bytes = results * sizeof(int);
  }
  void Launch() override {
    if (runs)
      Scan<<<kCount / 1024, 1024>>>(in, out);
    else
      Sum<<<kBlocks, 256>>>(in, out, kCount);
  }
  static constexpr int kCount = 1 << 21;
  static constexpr int kBlocks = kCount / 2048;
  bool runs;
  int *in = nullptr, *out = nullptr;
};

// --- an image of bytes is blurred -----------------------------------------------------------------------------------
__constant__ int kWeights[9] = {1, 2, 4, 8, 16, 8, 4, 2, 1};

__global__ void Blur(const uchar4* in, uchar4* out, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  int r = 0, g = 0, b = 0;
  for (int k = -4; k <= 4; ++k) {
    const uchar4 pixel = in[y * width + min(max(x + k, 0), width - 1)];
    r += pixel.x * kWeights[k + 4];
    g += pixel.y * kWeights[k + 4];
    b += pixel.z * kWeights[k + 4];
  }
  out[y * width + x] = {static_cast<uint8_t>(r / 46), static_cast<uint8_t>(g / 46),
                        static_cast<uint8_t>(b / 46), 255};
}

struct Image : Program {
  Image() {
    in = reinterpret_cast<uchar4*>(DeviceBytes(size_t{4} * kEdge * kEdge));
    result = out = Device<uchar4>(kEdge * kEdge);
    size_bytes = size_t{4} * kEdge * kEdge;
  }
  void Launch() override {
    Blur<<<dim3(kEdge / 16, kEdge / 16), dim3(16, 16)>>>(in, out, kEdge, kEdge);
  }
  static constexpr int kEdge = 1024;
  uchar4 *in = nullptr, *out = nullptr;
};

// --- each block sorts its 1024 numbers ------------------------------------------------------------------------------
__global__ void Sort(const uint32_t* in, uint32_t* out) {
  __shared__ uint32_t keys[1024];
  const uint32_t at = blockIdx.x * 1024 + threadIdx.x;
  keys[threadIdx.x] = in[at];
  keys[threadIdx.x + 512] = in[at + 512];
  for (uint32_t size = 2; size <= 1024; size *= 2) {
    for (uint32_t stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const uint32_t low = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
      const bool rising = (threadIdx.x & (size / 2)) == 0;
      const uint32_t a = keys[low], b = keys[low + stride];
      if ((a > b) == rising) {
        keys[low] = b;
        keys[low + stride] = a;
      }
    }
  }
  __syncthreads();
  out[at] = keys[threadIdx.x];
  out[at + 512] = keys[threadIdx.x + 512];
}

struct Sorting : Program {
  Sorting() {
    in = reinterpret_cast<uint32_t*>(DeviceBytes(4 * kCount));
    result = out = Device<uint32_t>(kCount);
    size_bytes = 4 * kCount;
  }
  void Launch() override { Sort<<<kCount / 1024, 512>>>(in, out); }
  static constexpr int kCount = 1 << 19;
  uint32_t *in = nullptr, *out = nullptr;
};

// --- the Mandelbrot set: lanes leave their loop one by one ----------------------------------------------------------
__global__ void Escape(int* out, int width, int most) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  const float re = -2.0f + 3.0f * x / width, im = -1.5f + 3.0f * y / width;
  float a = 0, b = 0;
  int count = 0;
  while (a * a + b * b <= 4.0f && count < most) {
    const float next = a * a - b * b + re;
    b = 2.0f * a * b + im;
    a = next;
    ++count;
  }
  out[y * width + x] = count;
}

struct Fractal : Program {
  Fractal() {
    result = out = Device<int>(kEdge * kEdge);
    size_bytes = sizeof(int) * kEdge * kEdge;
  }
  void Launch() override {
    Escape<<<dim3(kEdge / 16, kEdge / 16), dim3(16, 16)>>>(out, kEdge, 256);
  }
  static constexpr int kEdge = 512;
  int* out = nullptr;
};

// --- how often each byte occurs: atomics in shared and in device memory ---------------------------------------------
__global__ void Count(const uint32_t* in, uint32_t* out, int n) {
  __shared__ uint32_t counts[256];
  counts[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    const uint32_t word = in[i];
    for (int k = 0; k < 4; ++k) atomicAdd(&counts[word >> (8 * k) & 0xff], 1);
  }
  __syncthreads();
  atomicAdd(&out[threadIdx.x], counts[threadIdx.x]);
}

struct Histogram : Program {
  Histogram() {
    in = reinterpret_cast<uint32_t*>(DeviceBytes(4 * kCount));
    result = out = Device<uint32_t>(256);
    size_bytes = 4 * 256;
  }
  void Launch() override { Count<<<240, 256>>>(in, out, kCount); }
  static constexpr int kCount = 1 << 20;
  uint32_t *in = nullptr, *out = nullptr;
};

// --------------------------------------------------------------------------------------------------------------------
template <class P, auto... kArguments>
Program* Make() {
  return new P(kArguments...);
}

const struct {
  const char* name;
  Program* (*make)();
} kPrograms[] = {
    {"matmul", Make<MatrixProduct<float, 32>, 512>},
    {"matmul16", Make<MatrixProduct<float, 16>, 512>},
    {"double", Make<MatrixProduct<double, 32>, 512>},
    {"bodies", Make<Bodies>},
    {"options", Make<Options>},
    {"walks", Make<Walks>},
    {"sum", Make<Sums, false>},
    {"scan", Make<Sums, true>},
    {"image", Make<Image>},
    {"sort", Make<Sorting>},
    {"fractal", Make<Fractal>},
    {"histogram", Make<Histogram>},
};

}  // namespace

int main(int argc, char** argv) {
  for (const auto& known : kPrograms) {
    if (argc < 2) {
      std::printf("%s\n", known.name);
    } else if (std::strcmp(argv[1], known.name) == 0) {
      Measure(known.name, *known.make(), argc > 2 ? std::atoi(argv[2]) : 1);
      return 0;
    }
  }
  if (argc < 2) return 0;
  std::fprintf(stderr, "softgpu-kernels: no kernel '%s'; without arguments it lists them\n",
               argv[1]);
  return 2;
}
