// SPDX-License-Identifier: Apache-2.0
// The smallest program with a variable, a kernel with parameters and one without: images of it are measured by a test.
__device__ int offset;
__global__ void Scale(int* out, float factor) {
  out[threadIdx.x] = static_cast<int>(factor) + offset;
}
__global__ void Nothing() {}
