// SPDX-License-Identifier: Apache-2.0
// Copies of two and three dimensions as programs make them: pitched memory, arrays, and the memory
// of the host in all its kinds. Usage: copies2d3d
#include <cstring>
#include <vector>

#include "check.h"

__global__ void AddOne(int* rows, size_t pitch, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) {
    int* row = reinterpret_cast<int*>(reinterpret_cast<char*>(rows) + y * pitch);
    row[x] += 1;
  }
}

__global__ void Sum(cudaPitchedPtr block, int width, int height, int depth,
                    unsigned long long* sum) {
  const int x = threadIdx.x;
  unsigned long long own = 0;
  for (int z = 0; z < depth; ++z) {
    for (int y = 0; y < height; ++y) {
      const char* row =
          static_cast<char*>(block.ptr) + (size_t{unsigned(z)} * block.ysize + y) * block.pitch;
      if (x < width) own += reinterpret_cast<const int*>(row)[x];
    }
  }
  atomicAdd(sum, own);
}

static void Pitched(Program& program) {
  constexpr int kWidth = 333, kHeight = 77;
  std::vector<int> host(kWidth * kHeight), back(host.size());
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<int>(i * 7);
  int* device;
  size_t pitch;
  program.Ok(cudaMallocPitch(&device, &pitch, kWidth * sizeof(int), kHeight));
  program.Expect(pitch >= kWidth * sizeof(int), "a pitch below the width");
  program.Ok(cudaMemset2D(device, pitch, 0xff, kWidth * sizeof(int), kHeight));
  program.Ok(cudaMemcpy2D(device, pitch, host.data(), kWidth * sizeof(int), kWidth * sizeof(int),
                          kHeight, cudaMemcpyHostToDevice));
  AddOne<<<dim3(11, 10), dim3(32, 8)>>>(device, pitch, kWidth, kHeight);
  program.Ok(cudaGetLastError());
  program.Ok(cudaMemcpy2D(back.data(), kWidth * sizeof(int), device, pitch, kWidth * sizeof(int),
                          kHeight, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < host.size(); ++i) program.Expect(back[i] == host[i] + 1, "wrong row");

  // In a stream, from pageable memory that changes at once, and a part into the middle of pinned
  // memory.
  cudaStream_t stream;
  program.Ok(cudaStreamCreate(&stream));
  int* pinned;
  program.Ok(cudaMallocHost(&pinned, host.size() * sizeof(int)));
  std::memset(pinned, 0, host.size() * sizeof(int));
  program.Ok(cudaMemcpy2DAsync(device, pitch, host.data(), kWidth * sizeof(int),
                               kWidth * sizeof(int), kHeight, cudaMemcpyHostToDevice, stream));
  const int first = host[0];
  host[0] = -1;
  program.Ok(cudaMemcpy2DAsync(pinned + kWidth + 5, kWidth * sizeof(int), device, pitch,
                               10 * sizeof(int), 20, cudaMemcpyDeviceToHost, stream));
  program.Ok(cudaStreamSynchronize(stream));
  host[0] = first;
  for (int y = 0; y < 20; ++y) {
    for (int x = 0; x < 10; ++x) {
      program.Expect(pinned[(y + 1) * kWidth + x + 5] == host[y * kWidth + x], "wrong pinned row");
    }
  }
  program.Expect(pinned[kWidth + 4] == 0 && pinned[kWidth + 15] == 0, "wrote beside the block");
  program.Ok(cudaFreeHost(pinned));
  program.Ok(cudaFree(device));
  program.Ok(cudaStreamDestroy(stream));
}

static void Blocks(Program& program) {
  constexpr int kWidth = 50, kHeight = 20, kDepth = 9;
  std::vector<int> host(kWidth * kHeight * kDepth), back(host.size());
  unsigned long long expected = 0;
  for (size_t i = 0; i < host.size(); ++i) expected += host[i] = static_cast<int>(i);
  const cudaExtent extent = make_cudaExtent(kWidth * sizeof(int), kHeight, kDepth);
  cudaPitchedPtr device;
  program.Ok(cudaMalloc3D(&device, extent));
  program.Ok(cudaMemset3D(device, 0, extent));
  cudaMemcpy3DParms in = {};
  in.srcPtr = make_cudaPitchedPtr(host.data(), kWidth * sizeof(int), kWidth, kHeight);
  in.dstPtr = device;
  in.extent = extent;
  in.kind = cudaMemcpyHostToDevice;
  program.Ok(cudaMemcpy3D(&in));
  unsigned long long* sum;
  program.Ok(cudaMalloc(&sum, sizeof(*sum)));
  program.Ok(cudaMemset(sum, 0, sizeof(*sum)));
  Sum<<<1, 64>>>(device, kWidth, kHeight, kDepth, sum);
  unsigned long long got = 0;
  program.Ok(cudaMemcpy(&got, sum, sizeof(got), cudaMemcpyDeviceToHost));
  program.Expect(got == expected, "wrong sum of the block");

  // Through an array, a part of it.
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
  cudaArray_t array;
  program.Ok(cudaMalloc3DArray(&array, &format, make_cudaExtent(kWidth, kHeight, kDepth)));
  cudaMemcpy3DParms to_array = {};
  to_array.srcPtr = device;
  to_array.dstArray = array;
  to_array.extent = make_cudaExtent(kWidth, kHeight, kDepth);
  to_array.kind = cudaMemcpyDeviceToDevice;
  program.Ok(cudaMemcpy3D(&to_array));
  cudaMemcpy3DParms out = {};
  out.srcArray = array;
  out.srcPos = make_cudaPos(3, 2, 1);
  out.dstPtr = make_cudaPitchedPtr(back.data(), 10 * sizeof(int), 10, 5);
  out.extent = make_cudaExtent(10, 5, 4);
  out.kind = cudaMemcpyDeviceToHost;
  program.Ok(cudaMemcpy3D(&out));
  for (int z = 0; z < 4; ++z) {
    for (int y = 0; y < 5; ++y) {
      for (int x = 0; x < 10; ++x) {
        program.Expect(
            back[(z * 5 + y) * 10 + x] == host[((z + 1) * kHeight + y + 2) * kWidth + x + 3],
            "wrong part of the array");
      }
    }
  }
  program.Ok(cudaFreeArray(array));
  program.Ok(cudaFree(sum));
  program.Ok(cudaFree(device.ptr));
}

static void Arrays(Program& program) {
  constexpr int kWidth = 640, kHeight = 480;
  std::vector<float> host(kWidth * kHeight), back(host.size());
  for (size_t i = 0; i < host.size(); ++i) host[i] = 0.25f * i;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t first, second;
  program.Ok(cudaMallocArray(&first, &format, kWidth, kHeight));
  program.Ok(cudaMallocArray(&second, &format, kWidth, kHeight));
  const size_t row = kWidth * sizeof(float);
  // New memory shows nothing of others.
  program.Ok(
      cudaMemcpy2DFromArray(back.data(), row, first, 0, 0, row, kHeight, cudaMemcpyDeviceToHost));
  program.Ok(
      cudaMemcpy2DToArray(first, 0, 0, host.data(), row, row, kHeight, cudaMemcpyHostToDevice));
  program.Ok(
      cudaMemcpy2DArrayToArray(second, 0, 0, first, 0, 0, row, kHeight, cudaMemcpyDeviceToDevice));
  program.Ok(
      cudaMemcpy2DFromArray(back.data(), row, second, 0, 0, row, kHeight, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < host.size(); ++i) program.Expect(back[i] == host[i], "wrong element");
  cudaChannelFormatDesc desc;
  cudaExtent extent;
  unsigned flags;
  program.Ok(cudaArrayGetInfo(&desc, &extent, &flags, first));
  program.Expect(extent.width == kWidth && extent.height == kHeight && desc.x == 32,
                 "an array of another shape");
  program.Ok(cudaFreeArray(first));
  program.Ok(cudaFreeArray(second));
}

int main() {
  Program program("copies2d3d");
  Pitched(program);
  Blocks(program);
  Arrays(program);
  return program.Finish("kinds=3");
}
