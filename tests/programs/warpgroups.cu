// SPDX-License-Identifier: Apache-2.0
// A product of matrices as Hopper's libraries compute it: tiles come by tensor map, an mbarrier tells
// when, and four warps multiply them together in shared memory.
#include <cuda.h>
#include <cuda_fp16.h>

#include <vector>

#include "check.h"

constexpr int kTile = 64;   // rows of a, columns of b, and depth
constexpr int kSize = 128;  // of square matrices
constexpr int kThreads = 128;
constexpr int kSums = 32;  // of each thread
constexpr int kStep = 16;  // depth of one instruction

__device__ unsigned SharedAddress(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

// Rows of 128 bytes, swizzled, groups of eight 1024 bytes apart.
__device__ unsigned long long Descriptor(const void* at) {
  return (SharedAddress(at) & 0x3ffff) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ void LoadTile(half* to, const CUtensorMap* map, int x, int y, void* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(SharedAddress(to)),
      "l"(map), "r"(x), "r"(y), "r"(SharedAddress(barrier))
      : "memory");
}

// c = a * b, where a lies by rows and b by columns.
__global__ void Multiply(const __grid_constant__ CUtensorMap a,
                         const __grid_constant__ CUtensorMap b, float* c) {
  __shared__ alignas(1024) half left[kTile * kTile];
  __shared__ alignas(1024) half right[kTile * kTile];
  __shared__ unsigned long long barrier;
  const unsigned barrier_at = SharedAddress(&barrier);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier_at) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  float d[kSums] = {};
  for (int k = 0; k < kSize / kTile; ++k) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier_at),
                   "r"(static_cast<unsigned>(sizeof(left) + sizeof(right)))
                   : "memory");
      LoadTile(left, &a, k * kTile, blockIdx.y * kTile, &barrier);
      LoadTile(right, &b, k * kTile, blockIdx.x * kTile, &barrier);
    }
    unsigned done = 0;
    while (done == 0) {
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
          "selp.u32 %0, 1, 0, p; }"
          : "=r"(done)
          : "r"(barrier_at), "r"(k & 1)
          : "memory");
    }
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int step = 0; step < kTile / kStep; ++step) {
      asm volatile(
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
          "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
          "%26, "
          "%27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
            "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
            "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
            "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),
            "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
          : "l"(Descriptor(left) + 2 * step), "l"(Descriptor(right) + 2 * step));
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < kSums; ++i) {
    const int row = threadIdx.x / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
    const int column = lane % 4 * 2 + i % 2 + i / 4 * 8;
    c[(blockIdx.y * kTile + row) * kSize + blockIdx.x * kTile + column] = d[i];
  }
}

// Objects that a kernel makes, uses by their virtual functions and deletes.
struct Shape {
  __device__ virtual int Area() const = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  __device__ explicit Square(int s) : side(s) {}
  __device__ int Area() const override { return side * side; }
  int side;
};

__global__ void MakeShapes(int* areas) {
  const Shape* const shape = new Square(threadIdx.x);
  areas[threadIdx.x] = shape->Area();
  delete shape;
}

int main() {
  Program program("warpgroups");
  std::vector<half> a(kSize * kSize), b(kSize * kSize);
  for (int i = 0; i < kSize * kSize; ++i) {
    a[i] = __int2half_rn(i * 7 % 5 - 2);
    b[i] = __int2half_rn(i * 3 % 11 - 5);
  }
  half *device_a = nullptr, *device_b = nullptr;
  float* device_c = nullptr;
  program.Ok(cudaMalloc(&device_a, a.size() * sizeof(half)));
  program.Ok(cudaMalloc(&device_b, b.size() * sizeof(half)));
  program.Ok(cudaMalloc(&device_c, a.size() * sizeof(float)));
  program.Ok(cudaMemcpy(device_a, a.data(), a.size() * sizeof(half), cudaMemcpyHostToDevice));
  program.Ok(cudaMemcpy(device_b, b.data(), b.size() * sizeof(half), cudaMemcpyHostToDevice));
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  program.Ok(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                              cudaEnableDefault, &found));
  program.Expect(found == cudaDriverEntryPointSuccess, "cuTensorMapEncodeTiled");
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  CUtensorMap maps[2];
  half* const matrices[] = {device_a, device_b};
  for (int i = 0; i < 2; ++i) {
    const cuuint64_t dimensions[] = {kSize, kSize}, strides[] = {kSize * sizeof(half)};
    const cuuint32_t box[] = {kTile, kTile}, element_strides[] = {1, 1};
    const CUresult result =
        encode(&maps[i], CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, matrices[i], dimensions, strides, box,
               element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    program.Expect(result == CUDA_SUCCESS, "a tensor map");
  }
  Multiply<<<dim3(kSize / kTile, kSize / kTile), kThreads>>>(maps[0], maps[1], device_c);
  program.Ok(cudaGetLastError());
  std::vector<float> c(a.size());
  program.Ok(cudaMemcpy(c.data(), device_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost));
  bool right = true;
  for (int i = 0; i < kSize; ++i) {
    for (int j = 0; j < kSize; ++j) {
      float sum = 0;
      for (int k = 0; k < kSize; ++k) {
        sum += __half2float(a[i * kSize + k]) * __half2float(b[j * kSize + k]);
      }
      right &= c[i * kSize + j] == sum;
    }
  }
  program.Expect(right, "the product");

  constexpr int kShapes = 64;
  int* areas = nullptr;
  program.Ok(cudaMallocManaged(&areas, kShapes * sizeof(int)));
  MakeShapes<<<1, kShapes>>>(areas);
  program.Ok(cudaDeviceSynchronize());
  for (int i = 0; i < kShapes; ++i) program.Expect(areas[i] == i * i, "an area");
  return program.Finish("size=%d", kSize);
}
