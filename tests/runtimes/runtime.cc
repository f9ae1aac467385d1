// SPDX-License-Identifier: Apache-2.0
#include "tests/runtimes/runtime.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

extern "C" {
// What nvcc's code declares; no header has it for other compilers.
void** __cudaRegisterFatBinary(void* image);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
void __cudaRegisterVar(void** handle, char* variable, char* address, const char* name, int external,
                       size_t size_bytes, int constant, int global);
void __cudaRegisterFunction(void** handle, const char* stub, char* function, const char* name,
                            int thread_limit, uint3* thread, uint3* block, dim3* block_size,
                            dim3* grid_size, int* warp_size);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream);
}

void Fail(const Runtime* runtime, const std::string& what) {
  std::printf("FAIL %s: %s\n", runtime == nullptr ? "all" : runtime->name().c_str(), what.c_str());
  std::fflush(stdout);
  std::exit(1);
}

Runtime::Runtime(const std::string& version, const std::string& path) : name_(version) {
  library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) Fail(this, dlerror());
  Ok(RUNTIME_FUNCTION(*this, cudaRuntimeGetVersion)(&version_), "cudaRuntimeGetVersion");
  const size_t dot = version.find('.');
  const int wanted = std::atoi(version.c_str()) * 1000 + std::atoi(version.c_str() + dot + 1) * 10;
  if (version_ != wanted) {
    Fail(this, path + " says that it is version " + std::to_string(version_));
  }
}

bool Runtime::Has(const char* function) const { return dlsym(library_, function) != nullptr; }

void* Runtime::Find(const char* function) const {
  void* found = dlsym(library_, function);
  if (found == nullptr) Fail(this, std::string("the runtime has no function ") + function);
  return found;
}

void Runtime::Ok(cudaError_t result, const char* what) const {
  if (result == cudaSuccess) return;
  Fail(this, std::string(what) + ": " + RUNTIME_FUNCTION(*this, cudaGetErrorName)(result) + ", " +
                 RUNTIME_FUNCTION(*this, cudaGetErrorString)(result));
}

RegisteredImage::RegisteredImage(const Runtime& runtime, const std::string& path)
    : runtime_(runtime) {
  std::ifstream file(path, std::ios::binary);
  image_.assign(std::istreambuf_iterator<char>(file), {});
  if (image_.empty()) Fail(&runtime, "cannot read " + path);
  wrapper_.image = image_.data();
  handle_ = RUNTIME_FUNCTION(runtime, __cudaRegisterFatBinary)(&wrapper_);
}

RegisteredImage::~RegisteredImage() {
  RUNTIME_FUNCTION(runtime_, __cudaUnregisterFatBinary)(handle_);
}

void RegisteredImage::Kernel(const void* stub, const char* name) {
  RUNTIME_FUNCTION(runtime_, __cudaRegisterFunction)
  (handle_, static_cast<const char*>(stub), const_cast<char*>(name), name, -1, nullptr, nullptr,
   nullptr, nullptr, nullptr);
}

void RegisteredImage::Variable(void* variable, const char* name, size_t size_bytes, bool constant) {
  RUNTIME_FUNCTION(runtime_, __cudaRegisterVar)
  (handle_, static_cast<char*>(variable), const_cast<char*>(name), name, 0, size_bytes,
   constant ? 1 : 0, 0);
}

void RegisteredImage::Ready() { RUNTIME_FUNCTION(runtime_, __cudaRegisterFatBinaryEnd)(handle_); }

void RegisteredImage::Launch(const void* stub, unsigned blocks, unsigned threads,
                             cudaStream_t stream, void** arguments) const {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  cudaStream_t popped = nullptr;
  if (RUNTIME_FUNCTION(runtime_, __cudaPushCallConfiguration)(dim3(blocks), dim3(threads), 0,
                                                              stream) != 0) {
    Fail(&runtime_, "__cudaPushCallConfiguration");
  }
  runtime_.Ok(
      RUNTIME_FUNCTION(runtime_, __cudaPopCallConfiguration)(&grid, &block, &shared_bytes, &popped),
      "__cudaPopCallConfiguration");
  runtime_.Ok(RUNTIME_FUNCTION(runtime_, cudaLaunchKernel)(stub, grid, block, arguments,
                                                           shared_bytes, popped),
              "cudaLaunchKernel");
}
