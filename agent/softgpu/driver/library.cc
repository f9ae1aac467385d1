// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/library.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <utility>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/memory.h"
#include "agent/softgpu/driver/played.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "agent/softgpu/ptx/hollow.h"
#include "agent/softgpu/ptx/image.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/stepwise_launch.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

// The number in ".target sm_70". The text has been parsed already, so it stands there.
int PtxVersionOf(std::string_view ptx) {
  size_t at = ptx.find(".target");
  if (at != std::string_view::npos) at = ptx.find("sm_", at);
  int version = 0;
  if (at == std::string_view::npos) return 90;
  for (at += 3; at < ptx.size() && ptx[at] >= '0' && ptx[at] <= '9' && version < 1000; ++at) {
    version = version * 10 + (ptx[at] - '0');
  }
  return version;
}

// 48 KiB less what the code itself has: as much dynamic shared memory as CUDA allows without being
// asked (cuFuncSetAttribute).
std::shared_ptr<FunctionSettings> DefaultSettings(const Kernel& kernel, int ptx_version) {
  auto settings = std::make_shared<FunctionSettings>();
  settings->ptx_version = ptx_version;
  settings->dynamic_shared_bytes = std::max(
      0, static_cast<int>(kMaxStaticSharedBytes) - static_cast<int>(kernel.static_shared_bytes));
  return settings;
}

// The loader reports a PTX version that is too new by the beginning of its text; CUDA has an error
// of its own for it.
CUresult LoadFailure(bool out_of_memory, std::string_view log) {
  if (log.starts_with(Module::kTooNew)) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  return out_of_memory ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
}

}  // namespace

bool ReadFile(const char* path, std::vector<char>& content) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "rb"), std::fclose);
  if (file == nullptr) return false;
  char piece[65536];
  while (const size_t length = std::fread(piece, 1, sizeof(piece), file.get())) {
    content.insert(content.end(), piece, piece + length);
  }
  content.push_back('\0');
  return std::ferror(file.get()) == 0;
}

// Hollow kernels come first where the operator wants them, though there may be PTX beside the
// machine code.
CUresult ReadImage(const void* image, std::string& ptx, std::string& log) {
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CurrentSettings().hollow) ptx = ptx::HollowFromProgram(image, PlayedTarget());
  if (ptx.empty()) ptx = ptx::ExtractFromProgram(image, PlayedTarget(), &log);
  if (!ptx.empty()) return CUDA_SUCCESS;
  // An image that is well formed but has no code for this device, as opposed to one that cannot be
  // read.
  return log.starts_with(ptx::kNoPtx) || log.starts_with(ptx::kOnlyMachineCode)
             ? CUDA_ERROR_NO_BINARY_FOR_GPU
             : CUDA_ERROR_INVALID_IMAGE;
}

Externals ReadExternals(unsigned count, const CUjit_option* options, void** values) {
  if (options == nullptr || values == nullptr) return {};
  const auto find = [&](CUjit_option wanted) -> void* {
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == wanted) return values[i];
    }
    return nullptr;
  };
  const auto* names = static_cast<const char* const*>(find(CU_JIT_GLOBAL_SYMBOL_NAMES));
  const auto* addresses = static_cast<void* const*>(find(CU_JIT_GLOBAL_SYMBOL_ADDRESSES));
  const auto symbols =
      static_cast<unsigned>(reinterpret_cast<uintptr_t>(find(CU_JIT_GLOBAL_SYMBOL_COUNT)));
  Externals externals;
  if (names == nullptr || addresses == nullptr) return externals;
  for (unsigned i = 0; i < symbols; ++i) {
    externals.emplace(names[i], reinterpret_cast<uint64_t>(addresses[i]));
  }
  return externals;
}

std::vector<std::string> EntriesOf(const Module& code) {
  std::vector<std::string> names;
  for (const Kernel& kernel : code.kernels()) names.push_back(kernel.name);
  return names;
}

namespace {

// Sleeping stands for compiling: nothing is held meanwhile but what the caller holds.
void TakeCompileTime(size_t text_bytes) {
  const int seconds = CurrentSettings().compile_seconds_per_mib;
  if (seconds == 0) return;
  std::this_thread::sleep_for(std::chrono::duration<double>(
      seconds * static_cast<double>(text_bytes) / static_cast<double>(1 << 20)));
}

}  // namespace

CUresult LoadModule(Context& context, std::string_view ptx, std::shared_ptr<LoadedModule>& module,
                    std::string& log, const Externals& externals) {
  auto made = std::make_shared<LoadedModule>(context);
  bool out_of_memory = false;
  const auto allocate = [&](size_t size_bytes, size_t align_bytes) -> uint64_t {
    uint64_t begin = 0;
    if (align_bytes > 4096) return 0;  // allocations begin at pages
    if (Memory::Instance().Allocate(context, RegionKind::kModule, size_bytes, 0, begin) !=
        CUDA_SUCCESS) {
      return 0;
    }
    made->globals_begin = begin;
    return begin;
  };
  TakeCompileTime(ptx.size());
  made->code = Module::Load(ptx, allocate, &log, &out_of_memory, externals, PlayedTarget());
  if (made->code == nullptr) {
    // The loader allocates before it can find the last mistakes of the text; what was allocated
    // goes with the module that came to nothing.
    if (made->globals_begin != 0) {
      static_cast<void>(Memory::Instance().Free(made->globals_begin, RegionKind::kModule));
    }
    return LoadFailure(out_of_memory, log);
  }
  made->ptx_version = PtxVersionOf(ptx);
  if (!made->code->references().empty()) {
    made->references = std::make_shared<ModuleReferences>(context, made->code->references());
  }
  // Last, when nothing can fail any more: from here on other threads find it.
  Registry<LoadedModule>::Instance().Add(made);
  module = std::move(made);
  return CUDA_SUCCESS;
}

std::shared_ptr<LoadedFunction> LoadedModule::FunctionOf(
    const Kernel& kernel, std::shared_ptr<FunctionSettings> settings) {
  std::shared_ptr<LoadedFunction> loaded;
  {
    const MutexLock lock(mutex_);
    // One handle for each kernel of a module, however often it is requested, as CUDA promises.
    std::shared_ptr<LoadedFunction>& function = functions_[&kernel];
    if (function != nullptr) return function;
    function = std::make_shared<LoadedFunction>();
    function->module = this;
    function->kernel = &kernel;
    function->settings =
        settings != nullptr ? std::move(settings) : DefaultSettings(kernel, ptx_version);
    Registry<LoadedFunction>::Instance().Add(function);
    loaded = function;
  }
  context.NoteLoadedCode();
  return loaded;
}

// Handles die first, so that no new launch finds them; then what was launched ends; then its
// variables go. Work in streams holds the module itself, so code and tables outlive the handles.
void Unload(const std::shared_ptr<LoadedModule>& module) {
  Registry<LoadedModule>::Instance().Take(module.get());
  {
    const MutexLock lock(module->mutex_);
    for (const auto& [kernel, function] : module->functions_) {
      ForgetStepwiseLaunch(function.get());
      Registry<LoadedFunction>::Instance().Take(function.get());
    }
  }
  if (module->references != nullptr) module->references->Retire();
  SynchronizeDevice(module->context.device);
  if (module->globals_begin != 0) {
    static_cast<void>(Memory::Instance().Free(module->globals_begin, RegionKind::kModule));
  }
}

CUresult LoadLibrary(Context* context, std::string ptx, std::shared_ptr<LoadedLibrary>& library,
                     std::string& log, const Externals& externals) {
  auto made = std::make_shared<LoadedLibrary>();
  made->ptx = std::move(ptx);
  made->externals = externals;
  // With a context the library is loaded there at once, and that instance's code serves as
  // blueprint. Without one the text is checked by loading it over memory of our own, of which only
  // names and sizes are used.
  if (context != nullptr) {
    std::shared_ptr<LoadedModule> module;
    CUDA_RETURN_IF_ERROR(LoadModule(*context, made->ptx, module, log, externals));
    module->library = made.get();
    made->blueprint = module->code;
    const MutexLock lock(made->mutex);
    made->instances.emplace(context, std::move(module));
  } else {
    bool out_of_memory = false;
    const auto allocate = [&](size_t size_bytes, size_t align_bytes) {
      // Room for the alignment: the vector's storage begins anywhere.
      made->blueprint_globals.resize(size_bytes + align_bytes);
      const auto begin = reinterpret_cast<uint64_t>(made->blueprint_globals.data());
      return (begin + align_bytes - 1) / align_bytes * align_bytes;
    };
    made->blueprint =
        Module::Load(made->ptx, allocate, &log, &out_of_memory, externals, PlayedTarget());
    if (made->blueprint == nullptr) return LoadFailure(out_of_memory, log);
  }
  const int ptx_version = PtxVersionOf(made->ptx);
  for (const Kernel& kernel : made->blueprint->kernels()) {
    auto handle = std::make_shared<LibraryKernel>();
    handle->library = made.get();
    handle->kernel = &kernel;
    handle->settings = DefaultSettings(kernel, ptx_version);
    Registry<LibraryKernel>::Instance().Add(handle);
    made->kernels.push_back(std::move(handle));
  }
  Registry<LoadedLibrary>::Instance().Add(made);
  library = std::move(made);
  return CUDA_SUCCESS;
}

void Unload(const std::shared_ptr<LoadedLibrary>& library) {
  for (const auto& kernel : library->kernels) {
    ForgetStepwiseLaunch(kernel.get());
    Registry<LibraryKernel>::Instance().Take(kernel.get());
  }
  // Taken out under the lock and unloaded without it: unloading waits for the device.
  std::map<Context*, std::shared_ptr<LoadedModule>> instances;
  {
    const MutexLock lock(library->mutex);
    instances.swap(library->instances);
  }
  for (const auto& [context, module] : instances) Unload(module);
}

CUresult LoadedLibrary::ModuleIn(Context& context, std::shared_ptr<LoadedModule>& module) {
  CUDA_RETURN_IF_ERROR(broken);
  // Held while loading, so that two threads do not load the library twice into one context.
  const MutexLock lock(mutex);
  std::shared_ptr<LoadedModule>& instance = instances[&context];
  if (instance == nullptr) {
    std::string log;
    const CUresult loaded = LoadModule(context, ptx, instance, log, externals);
    if (loaded != CUDA_SUCCESS) {
      // An empty place would be unloaded as if it were an instance.
      instances.erase(&context);
      return loaded;
    }
    instance->library = this;
  }
  module = instance;
  return CUDA_SUCCESS;
}

CUresult FindFunction(Context& context, const void* handle, FoundFunction& found) {
  found.function = Registry<LoadedFunction>::Instance().Find(handle);
  if (found.function != nullptr) {
    // Looked up again by address, because the module may be unloaded at this moment.
    found.module = Registry<LoadedModule>::Instance().Find(found.function->module);
    return found.module == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  }
  const auto kernel = Registry<LibraryKernel>::Instance().Find(handle);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // Found by address again: the library may be unloaded between the two look-ups.
  const auto library = Registry<LoadedLibrary>::Instance().Find(kernel->library);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUDA_RETURN_IF_ERROR(library->ModuleIn(context, found.module));
  // The kernel's own pointer is into the blueprint; this context's instance has its own.
  const Kernel* here = found.module->code->FindKernel(kernel->kernel->name);
  if (here == nullptr) return CUDA_ERROR_NOT_FOUND;
  found.function = found.module->FunctionOf(*here, kernel->settings);
  return CUDA_SUCCESS;
}

// Libraries outlive contexts: only their instances here go. Each is taken out before it is
// unloaded, so that a library that is used meanwhile in another context is not held up.
void DestroyModulesOf(Context& context) {
  for (const auto& library : Registry<LoadedLibrary>::Instance().All()) {
    std::shared_ptr<LoadedModule> instance;
    {
      const MutexLock lock(library->mutex);
      const auto found = library->instances.find(&context);
      if (found == library->instances.end()) continue;
      instance = std::move(found->second);
      library->instances.erase(found);
    }
    Unload(instance);
  }
  for (const auto& module : Registry<LoadedModule>::Instance().All()) {
    if (&module->context == &context) Unload(module);
  }
}

}  // namespace gpuloom::softgpu
