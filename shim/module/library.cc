// SPDX-License-Identifier: Apache-2.0
#include "shim/module/library.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/channel/unique_fd.h"
#include "proto/cuda/fatbin.h"
#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/image/texture_reference.h"
#include "shim/memory/memory.h"
#include "shim/module/jit_options.h"
#include "shim/module/library_load.h"
#include "shim/module/link.h"
#include "shim/module/load_log.h"
#include "shim/module/managed_variables.h"
#include "shim/process/futex.h"
#include "shim/process/handle_table.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

struct Libraries {
  HandleTable<Library, wire::kMaxLibraries> table;
  Lock lock;
  Lock load_lock;  // held while a library is loaded again
};
constinit Libraries libraries;

// Makes a library that `ask` has the executor load. The id is taken before, and is free again if
// that fails.
template <typename Ask>
CUresult LoadAs(bool is_module, Library** out, Ask ask) {
  Library* library;
  {
    Holding holding(&libraries.lock);
    library = libraries.table.Take(libraries.lock);
  }
  if (library == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  library->is_module = is_module;
  const CUresult result = ask(library);
  if (result != CUDA_SUCCESS) {
    Holding holding(&libraries.lock);
    libraries.table.Give(libraries.lock, library);
    return result;
  }
  library->loaded.store(true, std::memory_order_release);
  *out = library;
  return CUDA_SUCCESS;
}

// Modules belong to a context. Libraries can be loaded, used and unloaded without one.
CUresult NeedOwner(bool is_module) { return is_module ? NeedContext() : NeedSession(); }

// Linked device code (-rdc=true) that was linked for other devices, or is PTX and so was not
// linked: its parts are linked for this device. `failure` is the linked image's error, and the
// result if there are no parts.
CUresult LoadLinked(const void* wrapper, bool is_module, const JitOptions& jit, CUresult failure,
                    Library** out) {
  uint8_t* image = nullptr;
  uint64_t image_bytes = 0;
  if (LinkParts(wrapper, jit, &image, &image_bytes) != CUDA_SUCCESS) return failure;
  LoadLog log;
  const CUresult result = LoadAs(is_module, out, [&](Library* library) {
    return LoadImage(library, image, image_bytes, {}, &log);
  });
  free(image);
  if (result != CUDA_SUCCESS) log.Print(jit);
  return result;
}

// An empty fatbin is well-formed, and has no code for any device. One that cannot be read is the
// executor's to judge.
bool HasMember(const Image& image) {
  if (image.kind != ImageKind::kFatbin) return true;
  FatbinReader members(image.bytes, image.size_bytes);
  FatbinMember member;
  return members.Next(&member) || members.error() != ImageError::kNone;
}

// With lazy loading CUDA reports errors in a library's code when it is first used. Here they are
// known at once, so they are kept for then.
CUresult DeferError(CUresult failure, bool is_module, Library** out) {
  if (is_module || session.settings().eager_modules) return failure;
  Library* library;
  {
    Holding holding(&libraries.lock);
    library = libraries.table.Take(libraries.lock);
  }
  if (library == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  // Not `loaded`: every use asks EnsureLoaded, which returns the error.
  library->broken = failure;
  *out = library;
  return CUDA_SUCCESS;
}

// Errors of the image itself, as opposed to those that any image would meet.
bool IsOfImage(CUresult failure) {
  return failure == CUDA_ERROR_INVALID_PTX || failure == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
         failure == CUDA_ERROR_INVALID_IMAGE || failure == CUDA_ERROR_NO_BINARY_FOR_GPU;
}

// Whether the program may reuse the image's memory after the call, or promises to leave it
// unchanged.
enum class ImageMemory : bool { kTransient, kPreserved };

// For images in memory: a wrapper, fatbin, cubin or PTX, whose kind and size are read from the
// image itself.
CUresult Load(const void* image_pointer, bool is_module, ImageMemory memory, unsigned option_count,
              const CUjit_option* options, void** values, Library** out) {
  CUDA_RETURN_IF_ERROR(NeedOwner(is_module));
  if (image_pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  CUDA_RETURN_IF_ERROR(ReadJitOptions(option_count, options, values, &jit));
  Image image;
  const ImageError error = FindImage(image_pointer, &image);
  CUresult result = CUDA_ERROR_INVALID_IMAGE;
  LoadLog log;
  if (error == ImageError::kNone && image.size_bytes != 0) {
    result = !HasMember(image)
                 ? CUDA_ERROR_NO_BINARY_FOR_GPU
                 : LoadAs(is_module, out, [&](Library* library) {
                     return LoadImage(library, image.bytes, image.size_bytes, jit, &log);
                   });
  }
  // No code for this device: perhaps there are parts that can be linked for it.
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_IMAGE) {
    result = LoadLinked(image_pointer, is_module, jit, result, out);
    if (result == CUDA_SUCCESS) return result;
  }
  if (result != CUDA_SUCCESS) log.Print(jit);
  if (IsOfImage(result)) return DeferError(result, is_module, out);
  if (result == CUDA_SUCCESS && memory == ImageMemory::kPreserved) {
    (*out)->image_bytes = image.size_bytes;
    (*out)->image = image.bytes;
  }
  return result;
}

// No image is as large; a larger size is not a real one.
constexpr off_t kLargestFileBytes = off_t{1} << 36;

// The file is read as a whole, because its size limits how far the image may be read.
CUresult LoadFile(const char* path, bool is_module, unsigned option_count,
                  const CUjit_option* options, void** values, Library** out) {
  CUDA_RETURN_IF_ERROR(NeedOwner(is_module));
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  JitOptions jit;
  CUDA_RETURN_IF_ERROR(ReadJitOptions(option_count, options, values, &jit));
  const channel::UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  const off_t size = file.valid() ? lseek(file.get(), 0, SEEK_END) : -1;
  if (size < 0) return CUDA_ERROR_FILE_NOT_FOUND;
  if (size == 0) return CUDA_ERROR_INVALID_IMAGE;
  // Some file systems report this for a directory.
  if (size > kLargestFileBytes) return CUDA_ERROR_OUT_OF_MEMORY;
  auto* bytes = static_cast<uint8_t*>(malloc(static_cast<size_t>(size)));
  if (bytes == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  off_t have = 0;
  while (have < size) {
    const ssize_t n = pread(file.get(), bytes + have, static_cast<size_t>(size - have), have);
    if (n <= 0) break;
    have += n;
  }
  CUresult result = CUDA_ERROR_INVALID_IMAGE;
  Image image;
  if (have == size && FindImage(bytes, static_cast<size_t>(size), &image) == ImageError::kNone) {
    LoadLog log;
    result = LoadAs(is_module, out, [&](Library* library) {
      return LoadImage(library, bytes, image.size_bytes, jit, &log);
    });
    if (result != CUDA_SUCCESS) log.Print(jit);
  }
  free(bytes);
  return result;
}

// The handle ends first, so that of several threads one goes on; the id is the last to be free.
CUresult Unload(Library* library) {
  {
    Holding holding(&libraries.lock);
    if (!libraries.table.Give(libraries.lock, library, /*reuse=*/false))
      return CUDA_ERROR_INVALID_HANDLE;
  }
  CUresult result = CUDA_SUCCESS;
  // Waits for kernels that may still write to managed variables.
  if (library->managed_begin != 0) (void)session.WaitForAll();
  // First, because the driver may at once give the same addresses to another thread's library.
  ForgetGlobals(IdOf(library));
  if (library->loaded.load(std::memory_order_acquire)) result = UnloadImage(library);
  // Last, because an id that is free here must be free in the executor.
  ReleaseKernels(library);
  ReleaseReferences(library);
  if (library->is_module)
    ForgetContextObject(ContextObjectKind::kModule, reinterpret_cast<uint64_t>(library));
  ForgetList(library);
  ReleaseManaged(library);
  Holding holding(&libraries.lock);
  libraries.table.Reuse(libraries.lock, libraries.table.IdOf(library));
  return result;
}

CUresult UnloadHandle(const void* handle, bool is_module) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // also where there is no context
  CUDA_RETURN_IF_ERROR(NeedOwner(is_module));
  Library* library = FindLibrary(handle);
  if (library == nullptr || library->is_module != is_module) return CUDA_ERROR_INVALID_HANDLE;
  return Unload(library);
}

CUresult FindFunction(const void* handle, bool is_module, const char* name, Kernel** kernel) {
  CUDA_RETURN_IF_ERROR(NeedOwner(is_module));
  Library* library = FindLibrary(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return GetKernel(library, name, kernel);
}

// What all functions that find a variable by its name check first.
CUresult CheckVariableName(Library* library, const char* name, const CUdeviceptr* address,
                           const size_t* size) {
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (name == nullptr || (address == nullptr && size == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  const size_t name_bytes = strlen(name);
  if (name_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (name_bytes > wire::kMaxNameBytes) return CUDA_ERROR_NOT_FOUND;
  return EnsureLoaded(library);
}

CUresult FindGlobalByName(const void* handle, const char* name, CUdeviceptr* address,
                          size_t* size) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Library* library = FindLibrary(handle);
  CUDA_RETURN_IF_ERROR(CheckVariableName(library, name, address, size));
  // A `__managed__` variable is one as well, at the program's own address.
  const CUresult managed = FindManagedVariable(library, name, address, size);
  if (managed != CUDA_ERROR_NOT_FOUND) return managed;
  wire::GlobalGet::Reply reply;
  CUDA_RETURN_IF_ERROR(session.Call<wire::GlobalGet>({IdOf(library)}, &reply, name,
                                                     static_cast<uint32_t>(strlen(name))));
  if (!NoteGlobal(reply.address, reply.size_bytes, IdOf(library))) return CUDA_ERROR_OUT_OF_MEMORY;
  if (address != nullptr) *address = static_cast<CUdeviceptr>(reply.address);
  if (size != nullptr) *size = reply.size_bytes;
  return CUDA_SUCCESS;
}

// Returns a handle of the kind that the caller asked for; leaves it unchanged on failure. `library`
// is passed by value, so it must have been made before, not in another argument.
template <typename Handle>
CUresult Answer(CUresult result, const Library* library, Handle* out) {
  if (result == CUDA_SUCCESS) *out = reinterpret_cast<Handle>(const_cast<Library*>(library));
  return result;
}

// A module belongs to the context it was loaded in.
CUresult AnswerModule(CUresult result, const Library* library, CUmodule* module) {
  if (result == CUDA_SUCCESS)
    NoteContextObject(ContextObjectKind::kModule, reinterpret_cast<uint64_t>(library));
  return Answer(result, library, module);
}

}  // namespace

Library* FindLibrary(const void* handle) { return libraries.table.Find(handle); }
wire::LibraryId IdOf(const Library* library) {
  return wire::LibraryId{libraries.table.IdOf(library)};
}

CUresult LoadModule(CUmodule* module, const void* image) {
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Library* library = nullptr;
  const CUresult result =
      Load(image, /*is_module=*/true, ImageMemory::kTransient, 0, nullptr, nullptr, &library);
  return AnswerModule(result, library, module);
}

CUresult EnsureLoaded(Library* library) GPULOOM_EXCLUDES(libraries.load_lock) {
  if (library->loaded.load(std::memory_order_acquire)) [[likely]] {
    return CUDA_SUCCESS;
  }
  if (library->broken != CUDA_SUCCESS) return library->broken;
  // One lock for all libraries: a reload happens once after a reset, and must not happen twice.
  Holding holding(&libraries.load_lock);
  if (library->loaded.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  LoadLog log;
  const CUresult result = LoadImage(library, library->image, library->image_bytes, {}, &log);
  if (result != CUDA_SUCCESS) log.Print({});
  if (result == CUDA_SUCCESS) library->loaded.store(true, std::memory_order_release);
  return result;
}

void ResetAllLibraries() {
  for (uint32_t id = 1; id <= libraries.table.used(); ++id) {
    Library* library = libraries.table.At(id);
    if (library == nullptr) continue;
    if (library->is_module) {
      (void)Unload(library);
    } else if (library->image != nullptr && library->loaded.load(std::memory_order_acquire)) {
      // Before the unload, as in Unload.
      ForgetGlobals(IdOf(library));
      (void)UnloadImage(library);
      library->loaded.store(false, std::memory_order_release);
      MarkKernelsStale(library);
      ReleaseReferences(library);
    }
  }
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* handle, const void* code, CUjit_option* jit_options,
                           void** jit_values, unsigned jit_count, CUlibraryOption* options, void**,
                           unsigned option_count) {
  if (handle == nullptr || (option_count != 0 && options == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ImageMemory memory = ImageMemory::kTransient;
  for (unsigned i = 0; i < option_count; ++i) {
    // The option needs no value: cublasLt passes no array of values, and cudart one with 1 in it.
    if (options[i] == CU_LIBRARY_BINARY_IS_PRESERVED) memory = ImageMemory::kPreserved;
  }
  Library* library = nullptr;
  const CUresult result = Load(code, false, memory, jit_count, jit_options, jit_values, &library);
  return Answer(result, library, handle);
}

CUresult cuLibraryLoadFromFile(CUlibrary* handle, const char* path, CUjit_option* jit_options,
                               void** jit_values, unsigned jit_count, CUlibraryOption*, void**,
                               unsigned) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Library* library = nullptr;
  const CUresult result = LoadFile(path, false, jit_count, jit_options, jit_values, &library);
  return Answer(result, library, handle);
}

CUresult cuLibraryUnload(CUlibrary handle) { return UnloadHandle(handle, /*is_module=*/false); }

CUresult cuLibraryGetKernel(CUkernel* handle, CUlibrary library, const char* name) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Kernel* kernel = nullptr;
  const CUresult result = FindFunction(library, /*is_module=*/false, name, &kernel);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUkernel>(kernel);
  return result;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                            const char* name) {
  return FindGlobalByName(library, name, address, bytes);
}

CUresult cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary handle,
                             const char* name) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  Library* library = FindLibrary(handle);
  const CUresult result = CheckVariableName(library, name, address, bytes);
  return result != CUDA_SUCCESS ? result : FindManagedVariable(library, name, address, bytes);
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary handle) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Library* library = FindLibrary(handle);
  return Answer(library == nullptr ? CUDA_ERROR_INVALID_HANDLE : library->broken, library, module);
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) { return LoadModule(module, image); }
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return LoadModule(module, image);
}
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned option_count,
                            CUjit_option* options, void** values) {
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Library* library = nullptr;
  const CUresult result =
      Load(image, true, ImageMemory::kTransient, option_count, options, values, &library);
  return AnswerModule(result, library, module);
}
CUresult cuModuleLoad(CUmodule* module, const char* path) {
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Library* library = nullptr;
  const CUresult result = LoadFile(path, true, 0, nullptr, nullptr, &library);
  return AnswerModule(result, library, module);
}

CUresult cuModuleUnload(CUmodule handle) { return UnloadHandle(handle, /*is_module=*/true); }

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Kernel* kernel = nullptr;
  const CUresult result = FindFunction(module, /*is_module=*/true, name, &kernel);
  if (result == CUDA_SUCCESS) *function = reinterpret_cast<CUfunction>(kernel);
  return result;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module,
                              const char* name) {
  return FindGlobalByName(module, name, address, bytes);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (session.state() != Session::State::kInitialized) return CUDA_ERROR_NOT_INITIALIZED;
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = session.settings().eager_modules ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}

}  // extern "C"
