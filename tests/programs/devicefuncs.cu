// SPDX-License-Identifier: Apache-2.0
// Device functions: calls that are not inlined, recursion, functions through pointers, structs by
// value, local arrays, a switch with many cases, templates and 64-bit integer arithmetic.
#include <vector>

#include "check.h"

struct Pair {
  int64_t low;
  double high;
};

__device__ __noinline__ int Fibonacci(int n) {
  return n < 2 ? n : Fibonacci(n - 1) + Fibonacci(n - 2);
}

__device__ __noinline__ Pair Combine(Pair a, Pair b) {
  return {a.low * 3 + b.low, a.high - 2 * b.high};
}

__device__ __noinline__ int Twice(int x) { return 2 * x; }
__device__ __noinline__ int Square(int x) { return x * x; }
__device__ __noinline__ int Negate(int x) { return -x; }
using Unary = int (*)(int);
__device__ Unary const kUnary[] = {Twice, Square, Negate};

__device__ __noinline__ int Select(int which, int x) {
  switch (which) {
    case 0:
      return x + 11;
    case 1:
      return x * 7;
    case 2:
      return x ^ 0x55;
    case 3:
      return x - 1000;
    case 4:
      return x << 3;
    case 5:
      return ~x;
    case 6:
      return x % 17;
    case 7:
      return x / 3;
    default:
      return 0;
  }
}

// The array is indexed by data, so it stays in local memory.
__device__ __noinline__ int LocalArray(int seed) {
  int values[32];
  for (int i = 0; i < 32; ++i) values[i] = seed * i + 1;
  int index = seed & 31;
  int sum = 0;
  for (int i = 0; i < 20; ++i) {
    sum += values[index];
    values[index] = i;
    index = (index * 5 + 3) & 31;
  }
  return sum;
}

template <typename Integer>
__device__ __noinline__ Integer Mixed(Integer a, Integer b) {
  return a / b + a % b - (a >> 3) + (b << 2);
}

struct Results {
  int fibonacci, unary, selected, local;
  int64_t wide;
  uint64_t unsigned_wide, high_product;
  Pair pair;
  int bits;
};

__global__ void Call(Results* results, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Results& r = results[i];
  r.fibonacci = Fibonacci(i % 12);
  r.unary = kUnary[i % 3](i);
  r.selected = Select(i % 9, i);
  r.local = LocalArray(i);
  r.wide = Mixed<int64_t>(-1234567890123 * (i + 1), i + 5);
  r.unsigned_wide = Mixed<uint64_t>(0xfedcba9876543210ull, i + 1);
  r.high_product = __umul64hi(0xfedcba9876543210ull, 0x123456789abcdef0ull + i);
  r.pair = Combine({i, 0.5 * i}, {2 * i + 1, 0.25});
  r.bits = __popc(i) + __clz(i + 1) * 64 + __ffs(i) * 4096 + static_cast<int>(__brev(i) >> 28);
}

int HostFibonacci(int n) { return n < 2 ? n : HostFibonacci(n - 1) + HostFibonacci(n - 2); }

int HostSelect(int which, int x) {
  const int answers[] = {x + 11, x * 7, x ^ 0x55, x - 1000, x << 3, ~x, x % 17, x / 3, 0};
  return answers[which];
}

int HostLocalArray(int seed) {
  int values[32];
  for (int i = 0; i < 32; ++i) values[i] = seed * i + 1;
  int index = seed & 31;
  int sum = 0;
  for (int i = 0; i < 20; ++i) {
    sum += values[index];
    values[index] = i;
    index = (index * 5 + 3) & 31;
  }
  return sum;
}

template <typename Integer>
Integer HostMixed(Integer a, Integer b) {
  return a / b + a % b - (a >> 3) + (b << 2);
}

int main(int argc, char** argv) {
  Program program("devicefuncs");
  const int n = static_cast<int>(NumberArgument(argc, argv, 200));
  Results* device;
  program.Ok(cudaMalloc(&device, n * sizeof(Results)));
  Call<<<(n + 63) / 64, 64>>>(device, n);
  program.Ok(cudaGetLastError());
  std::vector<Results> results(n);
  program.Ok(cudaMemcpy(results.data(), device, n * sizeof(Results), cudaMemcpyDeviceToHost));
  program.Ok(cudaFree(device));

  for (int i = 0; i < n; ++i) {
    const Results& r = results[i];
    const int unary[] = {2 * i, i * i, -i};
    program.Expect(r.fibonacci == HostFibonacci(i % 12), "recursion");
    program.Expect(r.unary == unary[i % 3], "function pointer");
    program.Expect(r.selected == HostSelect(i % 9, i), "switch");
    program.Expect(r.local == HostLocalArray(i), "local array");
    program.Expect(r.wide == HostMixed<int64_t>(-1234567890123 * (i + 1), i + 5), "int64");
    program.Expect(r.unsigned_wide == HostMixed<uint64_t>(0xfedcba9876543210ull, i + 1), "uint64");
    const unsigned __int128 product =
        static_cast<unsigned __int128>(0xfedcba9876543210ull) * (0x123456789abcdef0ull + i);
    program.Expect(r.high_product == static_cast<uint64_t>(product >> 64), "high product");
    program.Expect(r.pair.low == 5 * i + 1 && r.pair.high == 0.5 * i - 0.5, "struct by value");
    uint32_t reversed = 0;
    for (int b = 0; b < 32; ++b) reversed |= ((i >> b) & 1u) << (31 - b);
    const int bits = __builtin_popcount(i) + __builtin_clz(i + 1) * 64 + __builtin_ffs(i) * 4096 +
                     static_cast<int>(reversed >> 28);
    program.Expect(r.bits == bits, "bit counting");
  }
  return program.Finish("elements=%d", n);
}
