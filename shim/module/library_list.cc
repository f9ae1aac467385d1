// SPDX-License-Identifier: Apache-2.0
// Listing a library's kernels: the executor sends their names, piece by piece; a kernel is looked
// up when it is first used.
#include <stdlib.h>
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/module/library.h"
#include "shim/process/futex.h"
#include "shim/session/session.h"

namespace gpuloom {

constinit Lock list_lock;

namespace {

// All names, each ended by a NUL, malloc'ed; null when there are none.
CUresult AskForNames(const Library* library, char** names, uint32_t* bytes, uint32_t* count) {
  *names = nullptr;
  char piece[wire::kReplyPayloadBytes];
  for (uint32_t have = 0;;) {
    ReplyPayload payload = {piece, sizeof(piece), 0};
    wire::LibraryKernels::Reply reply;
    CUresult result =
        session.Call<wire::LibraryKernels>({IdOf(library), have}, &reply, nullptr, 0, &payload);
    if (result == CUDA_SUCCESS && have == 0) {
      *count = reply.kernel_count;
      *bytes = reply.names_bytes;
      if (*bytes == 0) return CUDA_SUCCESS;
      *names = static_cast<char*>(malloc(*bytes));
      if (*names == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    // An answer without progress, or with more than was announced.
    if (result == CUDA_SUCCESS && (payload.size_bytes == 0 || payload.size_bytes > *bytes - have)) {
      result = CUDA_ERROR_UNKNOWN;
    }
    if (result != CUDA_SUCCESS) {
      free(*names);
      *names = nullptr;
      return result;
    }
    memcpy(*names + have, piece, payload.size_bytes);
    have += static_cast<uint32_t>(payload.size_bytes);
    if (have == *bytes) return CUDA_SUCCESS;
  }
}

// For code with errors the driver lists no kernels, and reports the error when one is asked for.
CUresult ListLocked(Library* library) GPULOOM_REQUIRES(list_lock) {
  if (library->broken != CUDA_SUCCESS) return CUDA_SUCCESS;
  CUDA_RETURN_IF_ERROR(EnsureLoaded(library));
  char* names;
  uint32_t bytes = 0;
  uint32_t count = 0;
  CUresult result = AskForNames(library, &names, &bytes, &count);
  if (result != CUDA_SUCCESS) return result;
  library->listed = static_cast<Kernel**>(calloc(count == 0 ? 1 : count, sizeof(Kernel*)));
  if (library->listed == nullptr) result = CUDA_ERROR_OUT_OF_MEMORY;
  uint32_t at = 0;
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < count; ++i) {
    // Every name must end within what was sent.
    const auto* end = static_cast<const char*>(memchr(names + at, 0, bytes - at));
    result =
        end == nullptr ? CUDA_ERROR_UNKNOWN : ListKernel(library, names + at, &library->listed[i]);
    if (end != nullptr) at = static_cast<uint32_t>(end - names) + 1;
  }
  free(names);
  if (result != CUDA_SUCCESS) {
    free(library->listed);
    library->listed = nullptr;
    return result;
  }
  // Only now, as a list that failed is asked for again.
  library->listed_count = count;
  library->is_listed = true;
  return CUDA_SUCCESS;
}

CUresult Count(const void* handle, bool is_module, unsigned* count) {
  CUDA_RETURN_IF_ERROR(is_module ? NeedContext() : session.Check());
  Library* library = FindLibrary(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Kernel* const* kernels;
  return ListKernels(library, &kernels, count);
}

// CUDA gives as many as there is room for; it is no error if that is fewer than there are.
template <typename Handle>
CUresult Enumerate(const void* handle, bool is_module, Handle* handles, unsigned capacity) {
  CUDA_RETURN_IF_ERROR(is_module ? NeedContext() : session.Check());
  Library* library = FindLibrary(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (handles == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Kernel* const* kernels;
  unsigned count = 0;
  CUDA_RETURN_IF_ERROR(ListKernels(library, &kernels, &count));
  for (unsigned i = 0; i < count && i < capacity; ++i) {
    handles[i] = reinterpret_cast<Handle>(kernels[i]);
  }
  return CUDA_SUCCESS;
}

}  // namespace

// The lock is held across the round trips, so that the executor is asked once.
CUresult ListKernels(Library* library, Kernel* const** kernels, uint32_t* count) {
  Holding holding(&list_lock);
  if (!library->is_listed) {
    CUDA_RETURN_IF_ERROR(ListLocked(library));
  }
  *kernels = library->listed;
  *count = library->listed_count;
  return CUDA_SUCCESS;
}

// The kernels themselves belong to their library's buckets (kernel.h).
void ForgetList(Library* library) {
  Holding holding(&list_lock);
  free(library->listed);
  library->listed = nullptr;
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary library) {
  return Count(library, /*is_module=*/false, count);
}
CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned capacity, CUlibrary library) {
  return Enumerate(library, /*is_module=*/false, kernels, capacity);
}
CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  return Count(module, /*is_module=*/true, count);
}
CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned capacity, CUmodule module) {
  return Enumerate(module, /*is_module=*/true, functions, capacity);
}

}  // extern "C"
