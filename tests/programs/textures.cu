// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces as programs use them: arrays, linear and pitched memory, layers, mipmaps,
// every address mode, filtering, and surfaces written by one kernel and read by the next.
// Usage: textures
#include <cmath>
#include <vector>

#include "check.h"

__global__ void Read2D(cudaTextureObject_t texture, const float2* at, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = tex2D<float>(texture, at[i].x, at[i].y);
}
__global__ void ReadLinear(cudaTextureObject_t texture, int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = tex1Dfetch<int>(texture, i);
}
__global__ void ReadBytes(cudaTextureObject_t texture, float4* out) {
  out[threadIdx.x] = tex2D<float4>(texture, threadIdx.x + 0.5f, 0.5f);
}
__global__ void ReadLayers(cudaTextureObject_t texture, float* out) {
  out[threadIdx.x] = tex2DLayered<float>(texture, 1.5f, 2.5f, threadIdx.x);
}
__global__ void Read3D(cudaTextureObject_t texture, float* out) {
  out[threadIdx.x] = tex3D<float>(texture, 0.5f, 1.5f, threadIdx.x + 0.5f);
}
__global__ void ReadLevels(cudaTextureObject_t texture, float* out) {
  out[threadIdx.x] = tex2DLod<float>(texture, 0.5f, 0.5f, 0.5f * threadIdx.x);
}
__global__ void GatherFour(cudaTextureObject_t texture, float4* out) {
  *out = tex2Dgather<float4>(texture, 2.0f, 2.0f, 0);
}
__global__ void WriteSurface(cudaSurfaceObject_t surface, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < width && y < height) {
    surf2Dwrite(make_int2(x, 1000 * y), surface, x * static_cast<int>(sizeof(int2)), y);
  }
}
__global__ void ReadSurface(cudaSurfaceObject_t surface, int width, int height, int* wrong) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  int2 value;
  surf2Dread(&value, surface, x * static_cast<int>(sizeof(int2)), y);
  const int2 outside = surf2Dread<int2>(surface, -8, y, cudaBoundaryModeZero);
  if (value.x != x || value.y != 1000 * y || outside.x != 0 || outside.y != 0) atomicAdd(wrong, 1);
}

constexpr int kWidth = 8, kHeight = 4;

static cudaArray_t MakeImage(const Program& program, unsigned flags) {
  std::vector<float> image(kWidth * kHeight);
  for (int i = 0; i < kWidth * kHeight; ++i) {
    image[i] = static_cast<float>(i % kWidth + 10 * (i / kWidth));
  }
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  program.Ok(cudaMallocArray(&array, &format, kWidth, kHeight, flags));
  program.Ok(cudaMemcpy2DToArray(array, 0, 0, image.data(), kWidth * 4, kWidth * 4, kHeight,
                                 cudaMemcpyHostToDevice));
  return array;
}

static cudaResourceDesc OfArray(cudaArray_t array) {
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeArray;
  resource.res.array.array = array;
  return resource;
}

struct Case {
  cudaTextureAddressMode mode;
  cudaTextureFilterMode filter;
  bool normalized;
  float x, y, expected;
};

static void Modes(Program& program) {
  const Case cases[] = {
      {cudaAddressModeClamp, cudaFilterModePoint, false, 2.5f, 1.5f, 12},
      {cudaAddressModeClamp, cudaFilterModePoint, false, -3, 99, 30},
      {cudaAddressModeClamp, cudaFilterModeLinear, false, 2.0f, 1.0f, 6.5f},
      {cudaAddressModeClamp, cudaFilterModeLinear, false, 0, 0, 0},
      {cudaAddressModeBorder, cudaFilterModePoint, false, 8.5f, 1.5f, -5},
      {cudaAddressModeBorder, cudaFilterModeLinear, false, 8.0f, 1.5f, (17 - 5) / 2.0f},
      {cudaAddressModeWrap, cudaFilterModePoint, true, 1.3125f, 0.375f, 12},
      {cudaAddressModeWrap, cudaFilterModePoint, true, -0.0625f, 0.375f, 17},
      {cudaAddressModeMirror, cudaFilterModePoint, true, 1.0625f, 0.375f, 17},
      {cudaAddressModeMirror, cudaFilterModePoint, true, -0.1875f, 0.375f, 11},
      {cudaAddressModeWrap, cudaFilterModeLinear, true, 0, 0.375f, (10 + 17) / 2.0f},
      {cudaAddressModeClamp, cudaFilterModePoint, true, 5, 0.875f, 37},
  };
  const cudaArray_t array = MakeImage(program, cudaArrayDefault);
  const cudaResourceDesc resource = OfArray(array);
  float2* at;
  float* out;
  program.Ok(cudaMalloc(&at, sizeof(*at)));
  program.Ok(cudaMalloc(&out, sizeof(*out)));
  for (const Case& one : cases) {
    cudaTextureDesc sampler = {};
    for (cudaTextureAddressMode& mode : sampler.addressMode) mode = one.mode;
    sampler.filterMode = one.filter;
    sampler.readMode = cudaReadModeElementType;
    sampler.normalizedCoords = one.normalized;
    sampler.borderColor[0] = -5;
    cudaTextureObject_t texture;
    program.Ok(cudaCreateTextureObject(&texture, &resource, &sampler, nullptr));
    const float2 place = {one.x, one.y};
    program.Ok(cudaMemcpy(at, &place, sizeof(place), cudaMemcpyHostToDevice));
    Read2D<<<1, 1>>>(texture, at, out, 1);
    float got = 0;
    program.Ok(cudaMemcpy(&got, out, sizeof(got), cudaMemcpyDeviceToHost));
    if (got != one.expected) {
      std::printf("textures: mode %d filter %d at %g, %g: %g instead of %g\n", one.mode, one.filter,
                  one.x, one.y, got, one.expected);
    }
    program.Expect(got == one.expected, "wrong element of a texture");
    cudaResourceDesc same = {};
    program.Ok(cudaGetTextureObjectResourceDesc(&same, texture));
    program.Expect(same.resType == cudaResourceTypeArray && same.res.array.array == array,
                   "another resource");
    program.Ok(cudaDestroyTextureObject(texture));
  }
  program.Ok(cudaFree(at));
  program.Ok(cudaFree(out));
  program.Ok(cudaFreeArray(array));
}

static void Linear(Program& program) {
  constexpr int kCount = 10'000;
  std::vector<int> values(kCount), back(kCount + 32);
  for (int i = 0; i < kCount; ++i) values[i] = i * 3 - 5000;
  int *device, *out;
  program.Ok(cudaMalloc(&device, kCount * sizeof(int)));
  program.Ok(cudaMalloc(&out, back.size() * sizeof(int)));
  program.Ok(cudaMemcpy(device, values.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = device;
  resource.res.linear.desc = cudaCreateChannelDesc<int>();
  resource.res.linear.sizeInBytes = kCount * sizeof(int);
  cudaTextureDesc sampler = {};
  cudaTextureObject_t texture;
  program.Ok(cudaCreateTextureObject(&texture, &resource, &sampler, nullptr));
  ReadLinear<<<(kCount + 32 + 255) / 256, 256>>>(texture, out, kCount + 32);
  program.Ok(cudaMemcpy(back.data(), out, back.size() * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) program.Expect(back[i] == values[i], "wrong fetched element");
  for (int i = 0; i < 32; ++i) program.Expect(back[kCount + i] == 0, "something behind the end");
  program.Ok(cudaDestroyTextureObject(texture));

  // Bytes as fractions of 1, in pitched memory.
  uchar4* pixels;
  size_t pitch;
  program.Ok(cudaMallocPitch(&pixels, &pitch, 4 * sizeof(uchar4), 2));
  const uchar4 row[4] = {{0, 51, 102, 255}, {255, 0, 0, 0}, {1, 2, 3, 4}, {128, 64, 32, 16}};
  program.Ok(cudaMemcpy2D(pixels, pitch, row, sizeof(row), sizeof(row), 1, cudaMemcpyHostToDevice));
  resource = {};
  resource.resType = cudaResourceTypePitch2D;
  resource.res.pitch2D.devPtr = pixels;
  resource.res.pitch2D.desc = cudaCreateChannelDesc<uchar4>();
  resource.res.pitch2D.width = 4;
  resource.res.pitch2D.height = 2;
  resource.res.pitch2D.pitchInBytes = pitch;
  sampler.readMode = cudaReadModeNormalizedFloat;
  sampler.addressMode[0] = sampler.addressMode[1] = cudaAddressModeClamp;
  program.Ok(cudaCreateTextureObject(&texture, &resource, &sampler, nullptr));
  float4* colours;
  program.Ok(cudaMalloc(&colours, 4 * sizeof(float4)));
  ReadBytes<<<1, 4>>>(texture, colours);
  float4 got[4];
  program.Ok(cudaMemcpy(got, colours, sizeof(got), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 4; ++i) {
    program.Expect(std::fabs(got[i].x - row[i].x / 255.0f) < 1e-6f &&
                       std::fabs(got[i].y - row[i].y / 255.0f) < 1e-6f &&
                       std::fabs(got[i].z - row[i].z / 255.0f) < 1e-6f &&
                       std::fabs(got[i].w - row[i].w / 255.0f) < 1e-6f,
                   "wrong colour");
  }
  program.Ok(cudaDestroyTextureObject(texture));
  program.Ok(cudaFree(colours));
  program.Ok(cudaFree(pixels));
  program.Ok(cudaFree(out));
  program.Ok(cudaFree(device));
}

static void Fill(const Program& program, cudaArray_t array, int depth, float step) {
  std::vector<float> values(kWidth * kHeight * depth);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % (kWidth * kHeight)) + step * (i / (kWidth * kHeight));
  }
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(values.data(), kWidth * 4, kWidth, kHeight);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(kWidth, kHeight, depth);
  copy.kind = cudaMemcpyHostToDevice;
  program.Ok(cudaMemcpy3D(&copy));
}

static void Shapes(Program& program) {
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaTextureDesc sampler = {};
  for (cudaTextureAddressMode& mode : sampler.addressMode) mode = cudaAddressModeClamp;
  float* out;
  program.Ok(cudaMalloc(&out, 8 * sizeof(float)));
  float got[8] = {};
  for (const bool layered : {true, false}) {
    cudaArray_t array;
    program.Ok(cudaMalloc3DArray(&array, &format, make_cudaExtent(kWidth, kHeight, 5),
                                 layered ? cudaArrayLayered : cudaArrayDefault));
    Fill(program, array, 5, 100);
    const cudaResourceDesc resource = OfArray(array);
    cudaTextureObject_t texture;
    program.Ok(cudaCreateTextureObject(&texture, &resource, &sampler, nullptr));
    if (layered) {
      ReadLayers<<<1, 5>>>(texture, out);
    } else {
      Read3D<<<1, 5>>>(texture, out);
    }
    program.Ok(cudaMemcpy(got, out, 5 * sizeof(float), cudaMemcpyDeviceToHost));
    for (int z = 0; z < 5; ++z) {
      program.Expect(got[z] == (layered ? 17 : 8) + 100.0f * z, "wrong slice");
    }
    program.Ok(cudaDestroyTextureObject(texture));
    program.Ok(cudaFreeArray(array));
  }

  cudaMipmappedArray_t mipmap;
  program.Ok(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(kWidth, kHeight, 0), 3));
  for (unsigned level = 0; level < 3; ++level) {
    cudaArray_t array;
    program.Ok(cudaGetMipmappedArrayLevel(&array, mipmap, level));
    const std::vector<float> values(kWidth * kHeight, 10.0f * level);
    const size_t row = (kWidth >> level) * sizeof(float);
    program.Ok(cudaMemcpy2DToArray(array, 0, 0, values.data(), row, row, kHeight >> level,
                                   cudaMemcpyHostToDevice));
  }
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeMipmappedArray;
  resource.res.mipmap.mipmap = mipmap;
  sampler.mipmapFilterMode = cudaFilterModeLinear;
  sampler.normalizedCoords = 1;
  sampler.maxMipmapLevelClamp = 2;
  cudaTextureObject_t texture;
  program.Ok(cudaCreateTextureObject(&texture, &resource, &sampler, nullptr));
  ReadLevels<<<1, 6>>>(texture, out);
  program.Ok(cudaMemcpy(got, out, 6 * sizeof(float), cudaMemcpyDeviceToHost));
  const float expected[] = {0, 5, 10, 15, 20, 20};
  for (int i = 0; i < 6; ++i) program.Expect(got[i] == expected[i], "wrong level of detail");
  program.Ok(cudaDestroyTextureObject(texture));
  program.Ok(cudaFreeMipmappedArray(mipmap));

  const cudaArray_t gathered = MakeImage(program, cudaArrayTextureGather);
  const cudaResourceDesc of_gathered = OfArray(gathered);
  cudaTextureDesc plain = {};
  plain.addressMode[0] = plain.addressMode[1] = cudaAddressModeClamp;
  program.Ok(cudaCreateTextureObject(&texture, &of_gathered, &plain, nullptr));
  GatherFour<<<1, 1>>>(texture, reinterpret_cast<float4*>(out));
  program.Ok(cudaMemcpy(got, out, sizeof(float4), cudaMemcpyDeviceToHost));
  program.Expect(got[0] == 21 && got[1] == 22 && got[2] == 12 && got[3] == 11, "wrong gather");
  program.Ok(cudaDestroyTextureObject(texture));
  program.Ok(cudaFreeArray(gathered));
  program.Ok(cudaFree(out));
}

static void Surfaces(Program& program) {
  constexpr int kColumns = 100, kRows = 60;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<int2>();
  cudaArray_t array;
  program.Ok(cudaMallocArray(&array, &format, kColumns, kRows, cudaArraySurfaceLoadStore));
  const cudaResourceDesc resource = OfArray(array);
  cudaSurfaceObject_t surface;
  program.Ok(cudaCreateSurfaceObject(&surface, &resource));
  int* wrong;
  program.Ok(cudaMalloc(&wrong, sizeof(int)));
  program.Ok(cudaMemset(wrong, 0, sizeof(int)));
  const dim3 grid(7, 8), block(16, 8);
  WriteSurface<<<grid, block>>>(surface, kColumns, kRows);
  ReadSurface<<<grid, block>>>(surface, kColumns, kRows, wrong);
  int count = -1;
  program.Ok(cudaMemcpy(&count, wrong, sizeof(count), cudaMemcpyDeviceToHost));
  program.Expect(count == 0, "a surface that does not keep what is written");
  std::vector<int2> back(kColumns * kRows);
  program.Ok(cudaMemcpy2DFromArray(back.data(), kColumns * 8, array, 0, 0, kColumns * 8, kRows,
                                   cudaMemcpyDeviceToHost));
  for (int i = 0; i < kColumns * kRows; ++i) {
    program.Expect(back[i].x == i % kColumns && back[i].y == i / kColumns * 1000,
                   "wrong element behind a surface");
  }
  program.Ok(cudaDestroySurfaceObject(surface));
  program.Ok(cudaFree(wrong));
  program.Ok(cudaFreeArray(array));
}

int main() {
  Program program("textures");
  Modes(program);
  Linear(program);
  Shapes(program);
  Surfaces(program);
  return program.Finish("modes=12");
}
