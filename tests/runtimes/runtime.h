// SPDX-License-Identifier: Apache-2.0
// One CUDA runtime, loaded by its path, and what a program built with it registers there. Several of
// them can be used in one process, as where a program's libraries each bring their own. Functions
// are found by name, with the types of the toolkit's headers; where an older runtime takes other
// arguments, the caller says which. Used from one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

// The runtime's function of that name.
#define RUNTIME_FUNCTION(runtime, name) (runtime).Get<decltype(::name)>(#name)

class Runtime {
 public:
  // `version` is "11.8". Prints what failed and ends the process if that is no such runtime.
  Runtime(const std::string& version, const std::string& path);

  // As the runtime itself writes it: 11080.
  [[nodiscard]] int version() const { return version_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] bool Has(const char* function) const;
  // Ends the process if there is none.
  template <typename Type>
  [[nodiscard]] Type* Get(const char* function) const {
    return reinterpret_cast<Type*>(Find(function));
  }

  // A call that must succeed; ends the process otherwise.
  void Ok(cudaError_t result, const char* what) const;

 private:
  [[nodiscard]] void* Find(const char* function) const;

  std::string name_;
  int version_ = 0;
  void* library_ = nullptr;
};

// An image of device code, as nvcc's start-up code registers it before main. Taken back at the end,
// as at exit.
class RegisteredImage {
 public:
  // The wrapper that nvcc puts into the section .nvFatBinSegment.
  struct Wrapper {
    int magic = 0x466243b1;
    int version = 1;
    const void* image = nullptr;
    void* unused = nullptr;
  };

  // Reads the image from a file. More is registered with handle() before Ready.
  RegisteredImage(const Runtime& runtime, const std::string& path);
  ~RegisteredImage();
  RegisteredImage(const RegisteredImage&) = delete;
  RegisteredImage& operator=(const RegisteredImage&) = delete;

  [[nodiscard]] void** handle() const { return handle_; }
  // `stub` and `variable` are the host's addresses, by which the runtime knows them.
  void Kernel(const void* stub, const char* name);
  void Variable(void* variable, const char* name, size_t size_bytes, bool constant);
  // Everything is registered.
  void Ready();

  // kernel<<<blocks, threads, 0, stream>>>(arguments...), in the steps of nvcc's code.
  void Launch(const void* stub, unsigned blocks, unsigned threads, cudaStream_t stream,
              void** arguments) const;

 private:
  const Runtime& runtime_;
  std::string image_;
  Wrapper wrapper_;
  void** handle_ = nullptr;
};

// Prints a line that begins with FAIL and ends the process with status 1.
[[noreturn]] void Fail(const Runtime* runtime, const std::string& what);
