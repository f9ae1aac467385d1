#include "shim/kernel.h"

#include <stdlib.h>
#include <string.h>

#include "shim/context.h"
#include "shim/futex.h"
#include "shim/handle_table.h"
#include "shim/library.h"
#include "shim/log.h"
#include "shim/session.h"

namespace gpuloom {
namespace {

struct Kernels {
  HandleTable<Kernel, wire::kMaxKernels> table;
  // Guards the table's Take and Give and all libraries' buckets; held while a kernel is asked for,
  // so that a name becomes one kernel.
  Lock lock;
  Lock occupancy_lock;
};
constinit Kernels kernels;

uint32_t HashOf(const char* name) {
  uint32_t hash = 2166136261u;
  for (; *name != '\0'; ++name) hash = (hash ^ static_cast<uint8_t>(*name)) * 16777619u;
  return hash;
}

Kernel* FindByNameLocked(const Library& library, uint32_t bucket, const char* name) {
  for (Kernel* kernel = library.buckets[bucket]; kernel != nullptr; kernel = kernel->next) {
    if (strcmp(kernel->name, name) == 0) return kernel;
  }
  return nullptr;
}

void FreeFields(Kernel* kernel) {
  free(kernel->name);
  free(kernel->params);
  kernel->name = nullptr;
  kernel->params = nullptr;
}

void SetAttributes(Kernel* kernel, const int32_t (&attributes)[wire::kFunctionAttributes]) {
  for (uint32_t i = 0; i < wire::kFunctionAttributes; ++i) {
    kernel->attributes[i].store(attributes[i], std::memory_order_relaxed);
  }
}

// False when there is no memory or the executor contradicts itself.
bool SetParams(Kernel* kernel, const wire::KernelGet::Reply& reply, const wire::KernelParam* params,
               uint32_t known) {
  if (reply.param_bytes > wire::kMaxKernelParamBytes) return false;
  kernel->param_count = reply.param_count;
  kernel->param_bytes = reply.param_bytes;
  kernel->params_known = known == reply.param_count;
  if (!kernel->params_known || known == 0) return true;
  kernel->params = static_cast<wire::KernelParam*>(malloc(known * sizeof(wire::KernelParam)));
  if (kernel->params == nullptr) return false;
  memcpy(kernel->params, params, known * sizeof(wire::KernelParam));
  uint64_t end = 0;
  for (uint32_t i = 0; i < known; ++i) {
    const wire::KernelParam& param = params[i];
    if (param.size_bytes > reply.param_bytes ||
        param.offset_bytes > reply.param_bytes - param.size_bytes) {
      return false;
    }
    if (param.offset_bytes != end) kernel->params_have_holes = true;
    end = uint64_t{param.offset_bytes} + param.size_bytes;
  }
  if (end != reply.param_bytes) kernel->params_have_holes = true;
  return true;
}

struct KernelAnswer {
  wire::KernelGet::Reply reply;
  wire::KernelParam params[wire::kReplyPayloadBytes / sizeof(wire::KernelParam)];
  uint32_t known;  // params that fitted
};

CUresult CallGet(const Library* library, wire::KernelId id, const char* name,
                 KernelAnswer* answer) {
  ReplyPayload payload = {answer->params, sizeof(answer->params), 0};
  const CUresult result = session.Call<wire::KernelGet>(
      {IdOf(library), id}, &answer->reply, name, static_cast<uint32_t>(strlen(name)), &payload);
  answer->known = static_cast<uint32_t>(payload.size_bytes / sizeof(wire::KernelParam));
  return result;
}

CUresult AskForKernelLocked(Library* library, const char* name, Kernel** kernel_out) {
  Kernel* kernel = kernels.table.Take();
  if (kernel == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  KernelAnswer answer;
  const CUresult result = CallGet(library, IdOf(kernel), name, &answer);
  if (result != CUDA_SUCCESS) {
    kernels.table.Give(kernel);
    return result;
  }
  kernel->name = strdup(name);
  if (kernel->name == nullptr || !SetParams(kernel, answer.reply, answer.params, answer.known)) {
    // The executor knows the id now; it goes with the library.
    FreeFields(kernel);
    kernels.table.Give(kernel, /*reuse=*/false);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  SetAttributes(kernel, answer.reply.attributes);
  kernel->library = library;
  *kernel_out = kernel;
  return CUDA_SUCCESS;
}

// A kernel belongs to its library and is asked without a context.
CUresult Find(const void* handle, Kernel** kernel) {
  if (const CUresult result = session.Check(); result != CUDA_SUCCESS) return result;
  *kernel = FindKernel(handle);
  return *kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : RefreshKernel(*kernel);
}

CUresult GetAttribute(int* value, CUfunction_attribute attribute, const void* handle) {
  Kernel* kernel;
  if (const CUresult result = Find(handle, &kernel); result != CUDA_SUCCESS) return result;
  if (value == nullptr || attribute < 0 ||
      static_cast<uint32_t>(attribute) >= wire::kFunctionAttributes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int32_t known = kernel->attribute(attribute);
  if (known == wire::kNoAttribute) return CUDA_ERROR_INVALID_VALUE;
  *value = known;
  return CUDA_SUCCESS;
}

CUresult SetAttribute(const void* handle, CUfunction_attribute attribute, int value) {
  Kernel* kernel;
  if (const CUresult result = Find(handle, &kernel); result != CUDA_SUCCESS) return result;
  const bool settable = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
                        attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
                        (attribute >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH &&
                         attribute <= CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
  if (!settable) return CUDA_ERROR_INVALID_VALUE;
  // Libraries set the same value before every launch.
  if (kernel->attribute(attribute) == value) return CUDA_SUCCESS;
  wire::KernelSetAttribute::Reply reply;
  const CUresult result =
      session.Call<wire::KernelSetAttribute>({IdOf(kernel), attribute, value}, &reply);
  if (result != CUDA_SUCCESS) return result;
  SetAttributes(kernel, reply.attributes);
  Holding holding(&kernels.occupancy_lock);
  for (OccupancyAnswer& answer : kernel->occupancy) answer.block_threads = 0;
  return CUDA_SUCCESS;
}

CUresult GetParamInfo(const void* handle, size_t index, size_t* offset, size_t* size) {
  Kernel* kernel;
  if (const CUresult result = Find(handle, &kernel); result != CUDA_SUCCESS) return result;
  if (offset == nullptr || index >= kernel->param_count) return CUDA_ERROR_INVALID_VALUE;
  if (!kernel->params_known) return CUDA_ERROR_NOT_SUPPORTED;
  *offset = kernel->params[index].offset_bytes;
  if (size != nullptr) *size = kernel->params[index].size_bytes;
  return CUDA_SUCCESS;
}

CUresult GetName(const char** name, const void* handle) {
  Kernel* kernel;
  if (const CUresult result = Find(handle, &kernel); result != CUDA_SUCCESS) return result;
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->name;
  return CUDA_SUCCESS;
}

// Preferences that no current device follows; they are checked and dropped.
CUresult SetCacheConfig(const void* handle, CUfunc_cache config) {
  Kernel* kernel;
  if (const CUresult result = Find(handle, &kernel); result != CUDA_SUCCESS) return result;
  return config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult Occupancy(int* blocks, Kernel* kernel, int block_threads, size_t shared_bytes,
                   unsigned flags) {
  {
    Holding holding(&kernels.occupancy_lock);
    for (const OccupancyAnswer& answer : kernel->occupancy) {
      if (answer.block_threads == block_threads && answer.dynamic_shared_bytes == shared_bytes &&
          answer.flags == flags) {
        *blocks = answer.blocks_per_sm;
        return CUDA_SUCCESS;
      }
    }
  }
  wire::OccupancyBlocks::Reply reply;
  const CUresult result = session.Call<wire::OccupancyBlocks>(
      {IdOf(kernel), block_threads, shared_bytes, flags, 0}, &reply);
  if (result != CUDA_SUCCESS) return result;
  *blocks = reply.blocks_per_sm;
  Holding holding(&kernels.occupancy_lock);
  kernel->occupancy[kernel->next_occupancy++ % 4] = {block_threads, flags, shared_bytes,
                                                     reply.blocks_per_sm};
  return CUDA_SUCCESS;
}

CUresult MaxActiveBlocks(int* blocks, const void* handle, int block_threads, size_t shared_bytes,
                         unsigned flags) {
  Kernel* kernel;
  if (const CUresult result = Find(handle, &kernel); result != CUDA_SUCCESS) return result;
  if (blocks == nullptr || block_threads <= 0 ||
      (flags & ~unsigned{CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Occupancy(blocks, kernel, block_threads, shared_bytes, flags);
}

// The block size, in whole warps, with which the most threads are resident; the largest of equals.
CUresult MaxPotentialBlockSize(int* min_grid, int* best_block, const void* handle,
                               CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
                               int block_limit, unsigned flags) {
  Kernel* kernel;
  if (const CUresult result = Find(handle, &kernel); result != CUDA_SUCCESS) return result;
  if (min_grid == nullptr || best_block == nullptr || block_limit < 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int32_t* device = session.device().attributes;
  const int warp = device[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
  const int resident_limit = device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
  int limit = device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  const int kernel_limit = kernel->attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (kernel_limit < limit) limit = kernel_limit;
  if (block_limit != 0 && block_limit < limit) limit = block_limit;
  if (warp <= 0 || limit <= 0) return CUDA_ERROR_INVALID_VALUE;
  int most_resident = 0;
  int best_blocks = 0;
  *best_block = 0;
  for (int threads = (limit + warp - 1) / warp * warp; threads > 0; threads -= warp) {
    const int block = threads < limit ? threads : limit;
    const size_t shared = shared_of_block != nullptr ? shared_of_block(block) : shared_bytes;
    int blocks = 0;
    const CUresult result = Occupancy(&blocks, kernel, block, shared, flags);
    if (result != CUDA_SUCCESS) return result;
    if (blocks * block > most_resident) {
      most_resident = blocks * block;
      best_blocks = blocks;
      *best_block = block;
    }
    if (most_resident >= resident_limit) break;
  }
  *min_grid = best_blocks * device[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  return CUDA_SUCCESS;
}

}  // namespace

Kernel* FindKernel(const void* handle) { return kernels.table.Find(handle); }
wire::KernelId IdOf(const Kernel* kernel) { return wire::KernelId{kernels.table.IdOf(kernel)}; }

CUresult GetKernel(Library* library, const char* name, Kernel** kernel) {
  const size_t name_bytes = strlen(name);
  if (name_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (name_bytes > wire::kMaxNameBytes) return CUDA_ERROR_NOT_FOUND;
  if (const CUresult result = EnsureLoaded(library); result != CUDA_SUCCESS) return result;
  const uint32_t bucket = HashOf(name) % Library::kBuckets;
  Holding holding(&kernels.lock);
  *kernel = FindByNameLocked(*library, bucket, name);
  if (*kernel != nullptr) return CUDA_SUCCESS;
  const CUresult result = AskForKernelLocked(library, name, kernel);
  if (result != CUDA_SUCCESS) return result;
  (*kernel)->next = library->buckets[bucket];
  library->buckets[bucket] = *kernel;
  return CUDA_SUCCESS;
}

CUresult RefreshKernel(Kernel* kernel) {
  if (kernel->alive.load(std::memory_order_acquire) != Kernel::kStale) [[likely]] {
    return CUDA_SUCCESS;
  }
  if (const CUresult result = EnsureLoaded(kernel->library); result != CUDA_SUCCESS) return result;
  Holding holding(&kernels.lock);
  if (kernel->alive.load(std::memory_order_acquire) != Kernel::kStale) return CUDA_SUCCESS;
  KernelAnswer answer;
  const CUresult result = CallGet(kernel->library, IdOf(kernel), kernel->name, &answer);
  if (result != CUDA_SUCCESS) return result;
  // The same image: only what could be set has changed.
  SetAttributes(kernel, answer.reply.attributes);
  kernel->alive.store(1, std::memory_order_release);
  return CUDA_SUCCESS;
}

void MarkKernelsStale(Library* library) {
  Holding holding(&kernels.lock);
  for (Kernel* kernel : library->buckets) {
    for (; kernel != nullptr; kernel = kernel->next) {
      kernel->alive.store(Kernel::kStale, std::memory_order_release);
      Holding occupancy(&kernels.occupancy_lock);
      for (OccupancyAnswer& answer : kernel->occupancy) answer.block_threads = 0;
    }
  }
}

void ReleaseKernels(Library* library) {
  Holding holding(&kernels.lock);
  for (Kernel*& bucket : library->buckets) {
    for (Kernel* kernel = bucket; kernel != nullptr;) {
      Kernel* next = kernel->next;
      FreeFields(kernel);
      kernels.table.Give(kernel);
      kernel = next;
    }
    bucket = nullptr;
  }
}

}  // namespace gpuloom

using namespace gpuloom;  // NOLINT: CUDA's functions are written in our terms

extern "C" {

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return GetAttribute(value, attribute, function);
}
CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice device) {
  if (const CUresult result = NeedDevice(device); result != CUDA_SUCCESS) return result;
  return GetAttribute(value, attribute, kernel);
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return SetAttribute(function, attribute, value);
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice device) {
  if (const CUresult result = NeedDevice(device); result != CUDA_SUCCESS) return result;
  return SetAttribute(kernel, attribute, value);
}
CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* size) {
  return GetParamInfo(function, index, offset, size);
}
CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* size) {
  return GetParamInfo(kernel, index, offset, size);
}
CUresult cuFuncGetName(const char** name, CUfunction function) { return GetName(name, function); }
CUresult cuKernelGetName(const char** name, CUkernel kernel) { return GetName(name, kernel); }
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  return SetCacheConfig(function, config);
}
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
  if (const CUresult result = NeedDevice(device); result != CUDA_SUCCESS) return result;
  return SetCacheConfig(kernel, config);
}
CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
  Kernel* kernel;
  if (const CUresult result = Find(function, &kernel); result != CUDA_SUCCESS) return result;
  return config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
                 config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  Kernel* kernel;
  if (const CUresult result = Find(function, &kernel); result != CUDA_SUCCESS) return result;
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(kernel->library);
  return CUDA_SUCCESS;
}
CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel handle) {
  Kernel* kernel;
  if (const CUresult result = Find(handle, &kernel); result != CUDA_SUCCESS) return result;
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = reinterpret_cast<CUlibrary>(kernel->library);
  return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) {
  Kernel* kernel;
  if (const CUresult result = Find(handle, &kernel); result != CUDA_SUCCESS) return result;
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

// A kernel that has been found has been loaded.
CUresult cuFuncLoad(CUfunction function) {
  Kernel* kernel;
  return Find(function, &kernel);
}
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  Kernel* kernel;
  if (const CUresult result = Find(function, &kernel); result != CUDA_SUCCESS) return result;
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                     int block_threads, size_t shared_bytes) {
  return MaxActiveBlocks(blocks, function, block_threads, shared_bytes, 0);
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                              int block_threads,
                                                              size_t shared_bytes, unsigned flags) {
  return MaxActiveBlocks(blocks, function, block_threads, shared_bytes, flags);
}
CUresult cuOccupancyMaxPotentialBlockSize(int* min_grid, int* block, CUfunction function,
                                          CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
                                          int block_limit) {
  return MaxPotentialBlockSize(min_grid, block, function, shared_of_block, shared_bytes,
                               block_limit, 0);
}
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* min_grid, int* block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of_block,
                                                   size_t shared_bytes, int block_limit,
                                                   unsigned flags) {
  return MaxPotentialBlockSize(min_grid, block, function, shared_of_block, shared_bytes,
                               block_limit, flags);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction function, int blocks,
                                                 int block_threads) {
  Kernel* kernel;
  if (const CUresult result = Find(function, &kernel); result != CUDA_SUCCESS) return result;
  if (bytes == nullptr || blocks <= 0 || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  wire::OccupancySharedMemory::Reply reply;
  const CUresult result =
      session.Call<wire::OccupancySharedMemory>({IdOf(kernel), blocks, block_threads}, &reply);
  if (result == CUDA_SUCCESS) *bytes = reply.dynamic_shared_bytes;
  return result;
}

}  // extern "C"
