// SPDX-License-Identifier: Apache-2.0
#include "shim/module/managed_variables.h"

#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "shim/memory/host_arena.h"
#include "shim/memory/memory.h"
#include "shim/session/session.h"

namespace gpuloom {

CUresult ReserveManaged(Library* library, uint64_t size_bytes) {
  // A reload keeps the addresses, which the program may still hold; only another image needs
  // another size.
  if (library->managed_begin != 0 && library->managed_bytes != size_bytes) ReleaseManaged(library);
  if (library->managed_begin == 0) {
    uint64_t begin;
    CUDA_RETURN_IF_ERROR(TakePinned(size_bytes, &begin));
    library->managed_begin = begin;
    library->managed_bytes = size_bytes;
  }
  // The memory may have been another's; the driver then writes the initial values.
  memset(reinterpret_cast<void*>(library->managed_begin), 0, size_bytes);
  return CUDA_SUCCESS;
}

void ReleaseManaged(Library* library) {
  if (library->managed_begin == 0) return;
  ForgetManagedVariables(library->managed_begin, library->managed_bytes);
  GivePinned(library->managed_begin);
  library->managed_begin = 0;
}

CUresult FindManagedVariable(Library* library, const char* name, CUdeviceptr* address,
                             size_t* size) {
  if (library->managed_begin == 0) return CUDA_ERROR_NOT_FOUND;
  wire::ManagedGet::Reply reply;
  CUDA_RETURN_IF_ERROR(session.Call<wire::ManagedGet>({IdOf(library)}, &reply, name,
                                                      static_cast<uint32_t>(strlen(name))));
  const auto begin = static_cast<uint64_t>(reply.address);
  // From here on the program may name the address in its calls.
  if (!NoteManagedVariable(begin, reply.size_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (address != nullptr) *address = begin;
  if (size != nullptr) *size = reply.size_bytes;
  return CUDA_SUCCESS;
}

}  // namespace gpuloom
