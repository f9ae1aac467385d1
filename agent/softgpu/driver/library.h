// SPDX-License-Identifier: Apache-2.0
// Loaded code: modules, libraries, functions and kernels, as CUDA's handles name them.
//
// A library is an image that no context owns; it is loaded into each context on first use there. A
// module is an image in one context, with its own variables. A kernel belongs to a library, a
// function to a module; CUDA lets a kernel's handle stand wherever a function's is expected, and so
// do we (FindFunction). Everything handed out lives in a Registry until unloaded; work in a stream
// holds what it runs. Safe from any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/softgpu/driver/texture_reference.h"
#include "agent/softgpu/exec/machine/module.h"
#include "proto/cuda/cuda_all.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

struct Context;
struct LoadedLibrary;

// Reads a whole file, and appends a zero, because PTX text ends with one.
[[nodiscard]] bool ReadFile(const char* path, std::vector<char>& content);

struct LoadedModule;

// Hints about a cache and a bank width that a CPU does not have: only their values are checked.
[[nodiscard]] inline bool ValidCacheConfig(CUfunc_cache config) {
  return config >= CU_FUNC_CACHE_PREFER_NONE && config <= CU_FUNC_CACHE_PREFER_EQUAL;
}
[[nodiscard]] inline bool ValidSharedConfig(CUsharedconfig config) {
  return config >= CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE &&
         config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE;
}

// What cuFuncSetAttribute and cuKernelSetAttribute changed. A kernel and its functions share one.
struct FunctionSettings {
  int ptx_version = 90;  // of the .target directive: 70 for sm_70
  std::atomic<int> dynamic_shared_bytes{
      0};  // the most a launch may ask for; set to the default when made
  std::atomic<int> shared_carveout{-1};
  std::atomic<int> cluster_size[3] = {};
  std::atomic<int> non_portable_cluster{0};
  std::atomic<int> cluster_policy{0};
};

// CUfunction
struct LoadedFunction {
  LoadedModule* module = nullptr;  // the one that holds this function
  const Kernel* kernel = nullptr;
  std::shared_ptr<FunctionSettings> settings;
};

// CUmodule
struct LoadedModule : std::enable_shared_from_this<LoadedModule> {
  explicit LoadedModule(Context& of) : context(of) {}

  // Made on first demand; the same one every time.
  std::shared_ptr<LoadedFunction> FunctionOf(const Kernel& kernel,
                                             std::shared_ptr<FunctionSettings> settings);

  Context& context;
  std::shared_ptr<Module> code;
  std::shared_ptr<ModuleReferences> references;  // null: the code has no references
  int ptx_version = 90;
  uint64_t globals_begin = 0;        // 0: no variables
  LoadedLibrary* library = nullptr;  // the one that it is an instance of, or nullptr

 private:
  friend void Unload(const std::shared_ptr<LoadedModule>&);
  Mutex mutex_;
  std::map<const Kernel*, std::shared_ptr<LoadedFunction>> functions_ GPULOOM_GUARDED_BY(mutex_);
};

// CUkernel
struct LibraryKernel {
  LoadedLibrary* library = nullptr;  // the one that holds this kernel
  const Kernel* kernel = nullptr;    // in the library's blueprint
  std::shared_ptr<FunctionSettings> settings;
};

// CUlibrary
struct LoadedLibrary {
  CUresult broken = CUDA_SUCCESS;  // what its first use returns if its code is faulty

  // The instance in a context, loaded on its first use there.
  [[nodiscard]] CUresult ModuleIn(Context& context, std::shared_ptr<LoadedModule>& module);

  std::string ptx;
  Externals externals;
  std::shared_ptr<Module> blueprint;  // for names and sizes; perhaps the code of an instance, too
  std::vector<std::byte> blueprint_globals;
  std::vector<std::shared_ptr<LibraryKernel>> kernels;

  Mutex mutex;
  std::map<Context*, std::shared_ptr<LoadedModule>> instances GPULOOM_GUARDED_BY(mutex);
};

// Extracts PTX text from an image. After a failure `log` says what a person needs to know.
[[nodiscard]] CUresult ReadImage(const void* image, std::string& ptx, std::string& log);

// The CU_JIT_GLOBAL_SYMBOL_… options of the JIT; empty when they are not complete.
[[nodiscard]] Externals ReadExternals(unsigned count, const CUjit_option* options, void** values);

// The names of its kernels, for a log.
[[nodiscard]] std::vector<std::string> EntriesOf(const Module& code);

[[nodiscard]] CUresult LoadModule(Context& context, std::string_view ptx,
                                  std::shared_ptr<LoadedModule>& module, std::string& log,
                                  const Externals& externals = {});
// Its handles are invalid from here on. Waits for the device, as CUDA does, then frees its
// variables.
void Unload(const std::shared_ptr<LoadedModule>& module);

// If `context` is nullptr, the code is only checked, and loaded into contexts later.
[[nodiscard]] CUresult LoadLibrary(Context* context, std::string ptx,
                                   std::shared_ptr<LoadedLibrary>& library, std::string& log,
                                   const Externals& externals = {});
void Unload(const std::shared_ptr<LoadedLibrary>& library);

// What a handle means in a context: a function, or a library's kernel. `module` keeps it alive.
struct FoundFunction {
  std::shared_ptr<LoadedFunction> function;
  std::shared_ptr<LoadedModule> module;
};
[[nodiscard]] CUresult FindFunction(Context& context, const void* handle, FoundFunction& found);

// Ends all modules of a context that ends, and the instances of libraries in it.
void DestroyModulesOf(Context& context);

// cuFuncGetAttribute and cuKernelGetAttribute; their Set counterparts.
[[nodiscard]] CUresult GetAttribute(const Kernel& kernel, const FunctionSettings& settings,
                                    CUfunction_attribute attribute, int& value);
[[nodiscard]] CUresult SetAttribute(const Kernel& kernel, FunctionSettings& settings,
                                    CUfunction_attribute attribute, int value);

}  // namespace gpuloom::softgpu
