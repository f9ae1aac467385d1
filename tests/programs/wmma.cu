// SPDX-License-Identifier: Apache-2.0
// nvcuda::wmma: products of matrices through shared memory, in every precision it has.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <vector>

#include "check.h"

using namespace nvcuda;

constexpr int kTile = 16;
constexpr int kSize = 64;  // of square matrices

// c = a * b: one warp for each tile of c, with the tiles of a and b in shared memory.
__global__ void Multiply(const half* a, const half* b, float* c) {
  __shared__ half left[kTile * kTile];
  __shared__ half right[kTile * kTile];
  const int row = blockIdx.y * kTile;
  const int column = blockIdx.x * kTile;
  wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = 0; k < kSize; k += kTile) {
    for (int i = threadIdx.x; i < kTile * kTile; i += warpSize) {
      left[i] = a[(row + i / kTile) * kSize + k + i % kTile];
      right[i] = b[(k + i / kTile) * kSize + column + i % kTile];
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, half, wmma::row_major> y;
    wmma::load_matrix_sync(x, left, kTile);
    wmma::load_matrix_sync(y, right, kTile);
    wmma::mma_sync(sum, x, y, sum);
    __syncwarp();
  }
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= 2;  // every element is held by one lane
  wmma::store_matrix_sync(c + row * kSize + column, sum, kSize, wmma::mem_row_major);
}

// One product of every kind; `a` is by rows, `b` by columns.
template <typename T, typename Sum, int kM, int kN, int kK, typename Stored = T>
__global__ void One(const Stored* a, const Stored* b, Sum* c) {
  wmma::fragment<wmma::matrix_a, kM, kN, kK, T, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, kM, kN, kK, T, wmma::col_major> y;
  wmma::fragment<wmma::accumulator, kM, kN, kK, Sum> sum;
  wmma::fill_fragment(sum, static_cast<Sum>(1));
  wmma::load_matrix_sync(x, a, kK);
  wmma::load_matrix_sync(y, b, kK);
  wmma::mma_sync(sum, x, y, sum);
  wmma::store_matrix_sync(c, sum, kM, wmma::mem_col_major);
}

int NumberAt(int i, int seed) { return (i * 7 + seed) % 5; }

template <typename T, typename Sum, int kM, int kN, int kK, typename Stored = T>
void CheckOne(Program& program, const char* what) {
  std::vector<Stored> a(kM * kK), b(kN * kK);
  for (int i = 0; i < kM * kK; ++i) a[i] = static_cast<Stored>(static_cast<float>(NumberAt(i, 1)));
  for (int i = 0; i < kN * kK; ++i) b[i] = static_cast<Stored>(static_cast<float>(NumberAt(i, 3)));
  Stored *device_a = nullptr, *device_b = nullptr;
  Sum* device_c = nullptr;
  program.Ok(cudaMalloc(&device_a, a.size() * sizeof(Stored)));
  program.Ok(cudaMalloc(&device_b, b.size() * sizeof(Stored)));
  program.Ok(cudaMalloc(&device_c, kM * kN * sizeof(Sum)));
  program.Ok(cudaMemcpy(device_a, a.data(), a.size() * sizeof(Stored), cudaMemcpyHostToDevice));
  program.Ok(cudaMemcpy(device_b, b.data(), b.size() * sizeof(Stored), cudaMemcpyHostToDevice));
  One<T, Sum, kM, kN, kK, Stored><<<1, 32>>>(device_a, device_b, device_c);
  std::vector<Sum> c(kM * kN);
  program.Ok(cudaMemcpy(c.data(), device_c, c.size() * sizeof(Sum), cudaMemcpyDeviceToHost));
  bool right = true;
  for (int i = 0; i < kM; ++i) {
    for (int j = 0; j < kN; ++j) {
      int sum = 1;
      for (int k = 0; k < kK; ++k) sum += NumberAt(i * kK + k, 1) * NumberAt(j * kK + k, 3);
      right &= static_cast<float>(c[j * kM + i]) == static_cast<float>(sum);
    }
  }
  program.Expect(right, what);
  program.Ok(cudaFree(device_a));
  program.Ok(cudaFree(device_b));
  program.Ok(cudaFree(device_c));
}

int main() {
  Program program("wmma");
  std::vector<half> a(kSize * kSize), b(kSize * kSize);
  for (int i = 0; i < kSize * kSize; ++i) {
    a[i] = __int2half_rn(NumberAt(i, 0) - 2);
    b[i] = __int2half_rn(NumberAt(i / kSize + 3 * i, 2) - 2);
  }
  half *device_a = nullptr, *device_b = nullptr;
  float* device_c = nullptr;
  program.Ok(cudaMalloc(&device_a, a.size() * sizeof(half)));
  program.Ok(cudaMalloc(&device_b, b.size() * sizeof(half)));
  program.Ok(cudaMalloc(&device_c, a.size() * sizeof(float)));
  program.Ok(cudaMemcpy(device_a, a.data(), a.size() * sizeof(half), cudaMemcpyHostToDevice));
  program.Ok(cudaMemcpy(device_b, b.data(), b.size() * sizeof(half), cudaMemcpyHostToDevice));
  Multiply<<<dim3(kSize / kTile, kSize / kTile), 32>>>(device_a, device_b, device_c);
  std::vector<float> c(a.size());
  program.Ok(cudaMemcpy(c.data(), device_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost));
  bool right = true;
  for (int i = 0; i < kSize; ++i) {
    for (int j = 0; j < kSize; ++j) {
      float sum = 0;
      for (int k = 0; k < kSize; ++k) {
        sum += __half2float(a[i * kSize + k]) * __half2float(b[k * kSize + j]);
      }
      right &= c[i * kSize + j] == 2 * sum;
    }
  }
  program.Expect(right, "a product in shared memory");

  CheckOne<half, float, 16, 16, 16>(program, "half");
  CheckOne<half, half, 32, 8, 16>(program, "half, 32 x 8");
  CheckOne<half, float, 8, 32, 16>(program, "half, 8 x 32");
  CheckOne<__nv_bfloat16, float, 16, 16, 16>(program, "bfloat16");
  CheckOne<wmma::precision::tf32, float, 16, 16, 8, float>(program, "tf32");
  CheckOne<signed char, int, 16, 16, 16>(program, "signed bytes");
  CheckOne<unsigned char, int, 32, 8, 16>(program, "unsigned bytes, 32 x 8");
  CheckOne<double, double, 8, 8, 4>(program, "double");
  return program.Finish("size=%d", kSize);
}
