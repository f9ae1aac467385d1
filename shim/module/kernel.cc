// SPDX-License-Identifier: Apache-2.0
#include "shim/module/kernel.h"

#include <stdlib.h>
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/stepwise_launch.h"
#include "shim/context/context.h"
#include "shim/module/library.h"
#include "shim/process/futex.h"
#include "shim/process/handle_table.h"
#include "shim/process/log.h"
#include "shim/session/session.h"

namespace gpuloom {

constinit Lock kernels_lock;

namespace {

// Guarded by kernels_lock where it changes; handles are found without it.
constinit HandleTable<Kernel, wire::kMaxKernels> kernels;

// FNV-1a.
uint32_t HashOf(const char* name) {
  uint32_t hash = 2166136261u;
  for (; *name != '\0'; ++name) hash = (hash ^ static_cast<uint8_t>(*name)) * 16777619u;
  return hash;
}

Kernel* FindByNameLocked(const Library& library, uint32_t bucket, const char* name)
    GPULOOM_REQUIRES(kernels_lock) {
  for (Kernel* kernel = library.buckets[bucket]; kernel != nullptr; kernel = kernel->next) {
    if (strcmp(kernel->name, name) == 0) return kernel;
  }
  return nullptr;
}

// Sets them to null, since the object stays in the table.
void FreeFields(Kernel* kernel) {
  free(kernel->name);
  free(kernel->params);
  kernel->name = nullptr;
  kernel->params = nullptr;
}

// Atomic, because launches read attributes while another thread sets one or refreshes the kernel.
void SetAttributes(Kernel* kernel, const int32_t (&attributes)[wire::kFunctionAttributes]) {
  for (uint32_t i = 0; i < wire::kFunctionAttributes; ++i) {
    kernel->attributes[i].store(attributes[i], std::memory_order_relaxed);
  }
}

constexpr uint32_t kParamsOfAnAnswer = wire::kReplyPayloadBytes / sizeof(wire::KernelParam);

// The first answer, on the stack: a round trip has all that most kernels need.
struct KernelAnswer {
  wire::KernelGet::Reply reply;
  wire::KernelParam params[kParamsOfAnAnswer];
  uint32_t known;  // how many parameters fitted
};

// Asks for a kernel by name, and has the executor know it by this id from then on.
CUresult CallGet(const Library* library, wire::KernelId id, const char* name,
                 KernelAnswer* answer) {
  ReplyPayload payload = {answer->params, sizeof(answer->params), 0};
  const CUresult result = session.Call<wire::KernelGet>(
      {IdOf(library), id}, &answer->reply, name, static_cast<uint32_t>(strlen(name)), &payload);
  answer->known = static_cast<uint32_t>(payload.size_bytes / sizeof(wire::KernelParam));
  return result;
}

// Asks for the parameters that did not fit into the first answer.
CUresult AskForParams(wire::KernelId id, wire::KernelParam* params, uint32_t known,
                      uint32_t count) {
  while (known < count) {
    ReplyPayload payload = {params + known,
                            static_cast<uint32_t>((count - known) * sizeof(wire::KernelParam)), 0};
    wire::KernelParams::Reply reply;
    CUDA_RETURN_IF_ERROR(
        session.Call<wire::KernelParams>({id, known}, &reply, nullptr, 0, &payload));
    // An answer without progress would have us ask for ever.
    if (payload.size_bytes < sizeof(wire::KernelParam)) return CUDA_ERROR_UNKNOWN;
    known += static_cast<uint32_t>(payload.size_bytes / sizeof(wire::KernelParam));
  }
  return CUDA_SUCCESS;
}

// Fails if there is no memory or if the executor contradicts itself. Launches copy parameters by
// this table without looking again, so a wrong one would write beyond the record.
CUresult SetParams(Kernel* kernel, const KernelAnswer& answer) {
  const uint32_t count = answer.reply.param_count;
  const uint32_t bytes = answer.reply.param_bytes;
  if (bytes > wire::kMaxKernelParamBytes || count > bytes || answer.known > count) {
    return CUDA_ERROR_UNKNOWN;
  }
  kernel->param_count = count;
  kernel->param_bytes = bytes;
  if (count == 0) return CUDA_SUCCESS;
  kernel->params = static_cast<wire::KernelParam*>(malloc(count * sizeof(wire::KernelParam)));
  if (kernel->params == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(kernel->params, answer.params, answer.known * sizeof(wire::KernelParam));
  CUDA_RETURN_IF_ERROR(AskForParams(IdOf(kernel), kernel->params, answer.known, count));
  uint64_t end = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const wire::KernelParam& param = kernel->params[i];
    if (param.size_bytes > bytes || param.offset_bytes > bytes - param.size_bytes) {
      return CUDA_ERROR_UNKNOWN;
    }
    // Also if they were not in order.
    if (param.offset_bytes != end) kernel->params_have_holes = true;
    end = uint64_t{param.offset_bytes} + param.size_bytes;
  }
  if (end != bytes) kernel->params_have_holes = true;
  return CUDA_SUCCESS;
}

// Takes over the executor's description of a kernel whose handle nobody has yet.
CUresult Describe(Kernel* kernel, const KernelAnswer& answer) {
  if (const CUresult result = SetParams(kernel, answer); result != CUDA_SUCCESS) {
    free(kernel->params);
    kernel->params = nullptr;
    return result;
  }
  SetAttributes(kernel, answer.reply.attributes);
  // Wire 1.8 has it first.
  kernel->system_atomics = session.ServerKnows(8) && answer.reply.system_atomics != 0;
  kernel->cluster_is_fixed = kernel->attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) > 0;
  kernel->described = true;
  return CUDA_SUCCESS;
}

CUresult AskForKernelLocked(Library* library, const char* name, Kernel** kernel_out)
    GPULOOM_REQUIRES(kernels_lock) {
  Kernel* kernel = kernels.Take(kernels_lock);
  if (kernel == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  KernelAnswer answer;
  CUresult result = CallGet(library, IdOf(kernel), name, &answer);
  if (result != CUDA_SUCCESS) {
    kernels.Give(kernels_lock, kernel);
    return result;
  }
  kernel->name = strdup(name);
  result = kernel->name == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : Describe(kernel, answer);
  if (result != CUDA_SUCCESS) {
    // The executor knows the id now, and forgets it when the library is unloaded.
    FreeFields(kernel);
    kernels.Give(kernels_lock, kernel, /*reuse=*/false);
    return result;
  }
  kernel->library = library;
  *kernel_out = kernel;
  return CUDA_SUCCESS;
}

// What queries return for a null kernel; other functions return INVALID_HANDLE.
CUresult NoKernel() {
  const CUresult result = session.Check();
  return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

// Programs walk through a kernel's parameters until this fails with INVALID_VALUE.
CUresult GetParamInfo(const void* handle, size_t index, size_t* offset, size_t* size) {
  Kernel* kernel;
  if (handle == nullptr) return NoKernel();
  CUDA_RETURN_IF_ERROR(FindUsableKernel(handle, &kernel));
  if (offset == nullptr || index >= kernel->param_count) return CUDA_ERROR_INVALID_VALUE;
  *offset = kernel->params[index].offset_bytes;
  if (size != nullptr) *size = kernel->params[index].size_bytes;
  return CUDA_SUCCESS;
}

// Also finds a kernel that was only listed and not yet looked up.
CUresult FindListed(const void* handle, Kernel** kernel) {
  CUDA_RETURN_IF_ERROR(session.Check());
  *kernel = FindKernel(handle);
  return *kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult GetName(const char** name, const void* handle) {
  Kernel* kernel;
  if (handle == nullptr) return NoKernel();
  CUDA_RETURN_IF_ERROR(FindListed(handle, &kernel));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->name;
  return CUDA_SUCCESS;
}

}  // namespace

Kernel* FindKernel(const void* handle) { return kernels.Find(handle); }

// A kernel belongs to its library, so no current context is needed.
CUresult FindUsableKernel(const void* handle, Kernel** kernel) {
  CUDA_RETURN_IF_ERROR(NeedSession());
  *kernel = FindKernel(handle);
  return *kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : RefreshKernel(*kernel);
}
wire::KernelId IdOf(const Kernel* kernel) { return wire::KernelId{kernels.IdOf(kernel)}; }

CUresult GetKernel(Library* library, const char* name, Kernel** kernel) {
  const size_t name_bytes = strlen(name);
  if (name_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (name_bytes > wire::kMaxNameBytes) return CUDA_ERROR_NOT_FOUND;
  CUDA_RETURN_IF_ERROR(EnsureLoaded(library));
  const uint32_t bucket = HashOf(name) % Library::kBuckets;
  Holding holding(&kernels_lock);
  *kernel = FindByNameLocked(*library, bucket, name);
  if (*kernel != nullptr) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(AskForKernelLocked(library, name, kernel));
  (*kernel)->next = library->buckets[bucket];
  library->buckets[bucket] = *kernel;
  return CUDA_SUCCESS;
}

CUresult ListKernel(Library* library, const char* name, Kernel** kernel) {
  const uint32_t bucket = HashOf(name) % Library::kBuckets;
  Holding holding(&kernels_lock);
  *kernel = FindByNameLocked(*library, bucket, name);
  if (*kernel != nullptr) return CUDA_SUCCESS;
  Kernel* listed = kernels.Take(kernels_lock);
  if (listed == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  listed->name = strdup(name);
  if (listed->name == nullptr) {
    kernels.Give(kernels_lock, listed);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  listed->library = library;
  // Alive, so that it is found; stale, so that its first use asks the executor (RefreshKernel).
  listed->alive.store(Kernel::kStale, std::memory_order_release);
  listed->next = library->buckets[bucket];
  library->buckets[bucket] = listed;
  *kernel = listed;
  return CUDA_SUCCESS;
}

// The check is all that a launch pays. `alive` is stored last: who sees 1 sees the description.
CUresult RefreshKernel(Kernel* kernel) {
  if (kernel->alive.load(std::memory_order_acquire) != Kernel::kStale) [[likely]] {
    return CUDA_SUCCESS;
  }
  // Outside of the lock, since a library may take seconds to load.
  CUDA_RETURN_IF_ERROR(EnsureLoaded(kernel->library));
  Holding holding(&kernels_lock);
  if (kernel->alive.load(std::memory_order_acquire) != Kernel::kStale) return CUDA_SUCCESS;
  KernelAnswer answer;
  CUDA_RETURN_IF_ERROR(CallGet(kernel->library, IdOf(kernel), kernel->name, &answer));
  if (!kernel->described) {
    CUDA_RETURN_IF_ERROR(Describe(kernel, answer));
  }
  // The image is the same, so only attributes that can be set have changed.
  SetAttributes(kernel, answer.reply.attributes);
  kernel->alive.store(1, std::memory_order_release);
  return CUDA_SUCCESS;
}

void MarkKernelsStale(Library* library) {
  Holding holding(&kernels_lock);
  for (Kernel* kernel : library->buckets) {
    for (; kernel != nullptr; kernel = kernel->next) {
      kernel->alive.store(Kernel::kStale, std::memory_order_release);
      ForgetOccupancy(kernel);
    }
  }
}

void ReleaseKernels(Library* library) {
  Holding holding(&kernels_lock);
  for (Kernel*& bucket : library->buckets) {
    for (Kernel* kernel = bucket; kernel != nullptr;) {
      Kernel* next = kernel->next;
      ForgetStepwiseLaunch(kernel);
      FreeFields(kernel);
      kernels.Give(kernels_lock, kernel);
      kernel = next;
    }
    bucket = nullptr;
  }
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  return GetParamInfo(function, index, offset, size);
}
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  return GetParamInfo(kernel, index, offset, size);
}
CUresult cuFuncGetName(const char** name, CUfunction function) { return GetName(name, function); }
CUresult cuKernelGetName(const char** name, CUkernel kernel) { return GetName(name, kernel); }
CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  Kernel* kernel;
  if (function == nullptr) return NoKernel();
  CUDA_RETURN_IF_ERROR(FindListed(function, &kernel));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(kernel->library);
  return CUDA_SUCCESS;
}
CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel handle) {
  Kernel* kernel;
  CUDA_RETURN_IF_ERROR(FindListed(handle, &kernel));
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = reinterpret_cast<CUlibrary>(kernel->library);
  return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) {
  Kernel* kernel;
  CUDA_RETURN_IF_ERROR(FindListed(handle, &kernel));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // One object for both handles (kernel.h): there is nothing to look up.
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  Kernel* kernel;
  return FindUsableKernel(function, &kernel);
}
// A kernel found by its name has been loaded; one that was only listed has not.
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  CUDA_RETURN_IF_ERROR(session.Check());
  const Kernel* kernel = FindKernel(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = kernel->alive.load(std::memory_order_acquire) == Kernel::kStale
               ? CU_FUNCTION_LOADING_STATE_UNLOADED
               : CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

}  // extern "C"
