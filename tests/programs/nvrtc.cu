// SPDX-License-Identifier: Apache-2.0
// Code made at run time: compiled by NVRTC to PTX and loaded; two parts compiled to relocatable code,
// linked by nvJitLink, and loaded through the library functions.
#include <cuda.h>
#include <nvJitLink.h>
#include <nvrtc.h>

#include <string>
#include <vector>

#include "check.h"

constexpr char kScale[] = R"(
template <typename T> __global__ void Scale(T* values, int n, T by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] *= by;
}
)";
constexpr char kFunction[] = R"(
__device__ int offset = 40;
extern "C" __device__ int Twice(int x) { return 2 * x + offset; }
)";
constexpr char kKernel[] = R"(
extern "C" __device__ int Twice(int x);
extern "C" __global__ void Apply(int* values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = Twice(values[i]);
}
)";

// The PTX of `source`; with `name` also the lowered name of that expression.
std::vector<char> Compile(Program& program, const char* source, bool relocatable,
                          const char* name = nullptr, std::string* lowered = nullptr) {
  nvrtcProgram made;
  program.Expect(nvrtcCreateProgram(&made, source, "part.cu", 0, nullptr, nullptr) == NVRTC_SUCCESS,
                 "nvrtcCreateProgram");
  if (name != nullptr) nvrtcAddNameExpression(made, name);
  std::vector<const char*> options{"--gpu-architecture=compute_90"};
  if (relocatable) options.push_back("--relocatable-device-code=true");
  const nvrtcResult compiled =
      nvrtcCompileProgram(made, static_cast<int>(options.size()), options.data());
  program.Expect(compiled == NVRTC_SUCCESS, "nvrtcCompileProgram");
  if (name != nullptr) {
    const char* found = nullptr;
    program.Expect(nvrtcGetLoweredName(made, name, &found) == NVRTC_SUCCESS, "no lowered name");
    if (found != nullptr) *lowered = found;
  }
  size_t size = 0;
  nvrtcGetPTXSize(made, &size);
  std::vector<char> ptx(size);
  nvrtcGetPTX(made, ptx.data());
  nvrtcDestroyProgram(&made);
  return ptx;
}

int main() {
  Program program("nvrtc");
  const auto driver = [&](CUresult result, const char* what) {
    program.Expect(result == CUDA_SUCCESS, what);
  };
  constexpr int kCount = 1000;
  int n = kCount;
  float* floats = nullptr;
  int* whole = nullptr;
  program.Ok(cudaMalloc(&floats, kCount * sizeof(float)));
  program.Ok(cudaMalloc(&whole, kCount * sizeof(int)));
  std::vector<float> host_floats(kCount);
  std::vector<int> host(kCount);
  for (int i = 0; i < kCount; ++i) host_floats[i] = host[i] = i;
  program.Ok(cudaMemcpy(floats, host_floats.data(), kCount * sizeof(float), cudaMemcpyDefault));
  program.Ok(cudaMemcpy(whole, host.data(), kCount * sizeof(int), cudaMemcpyDefault));

  std::string lowered;
  const std::vector<char> ptx = Compile(program, kScale, false, "Scale<float>", &lowered);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  driver(cuModuleLoadData(&module, ptx.data()), "cuModuleLoadData of NVRTC's PTX");
  driver(cuModuleGetFunction(&function, module, lowered.c_str()), "cuModuleGetFunction");
  float by = 2.5f;
  void* arguments[] = {&floats, &n, &by};
  driver(cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr), "launch");
  program.Ok(cudaMemcpy(host_floats.data(), floats, kCount * sizeof(float), cudaMemcpyDefault));
  for (int i = 0; i < kCount; ++i) program.Expect(host_floats[i] == 2.5f * i, "wrong element");
  driver(cuModuleUnload(module), "cuModuleUnload");

  nvJitLinkHandle link = nullptr;
  const char* options[] = {"-arch=sm_90"};
  program.Expect(nvJitLinkCreate(&link, 1, options) == NVJITLINK_SUCCESS, "nvJitLinkCreate");
  for (const char* source : {kFunction, kKernel}) {
    std::vector<char> part = Compile(program, source, true);
    program.Expect(nvJitLinkAddData(link, NVJITLINK_INPUT_PTX, part.data(), part.size(), "part") ==
                       NVJITLINK_SUCCESS,
                   "nvJitLinkAddData");
  }
  program.Expect(nvJitLinkComplete(link) == NVJITLINK_SUCCESS, "nvJitLinkComplete");
  size_t size = 0;
  nvJitLinkGetLinkedCubinSize(link, &size);
  std::vector<char> cubin(size);
  nvJitLinkGetLinkedCubin(link, cubin.data());
  nvJitLinkDestroy(&link);
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  driver(cuLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
         "cuLibraryLoadData of the linked image");
  driver(cuLibraryGetKernel(&kernel, library, "Apply"), "cuLibraryGetKernel");
  void* more[] = {&whole, &n};
  driver(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 8, 1, 1, 128, 1, 1, 0, nullptr, more,
                        nullptr),
         "launch of the linked kernel");
  program.Ok(cudaMemcpy(host.data(), whole, kCount * sizeof(int), cudaMemcpyDefault));
  for (int i = 0; i < kCount; ++i) program.Expect(host[i] == 2 * i + 40, "wrong linked element");
  driver(cuLibraryUnload(library), "cuLibraryUnload");
  return program.Finish("name=%s elements=%d", lowered.c_str(), kCount);
}
