// SPDX-License-Identifier: Apache-2.0
#include "shim/module/managed_variables.h"

#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "shim/memory/host_arena.h"
#include "shim/memory/memory.h"
#include "shim/memory/migration.h"
#include "shim/module/library_load.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

// LibraryPlaceApart came with minor version 7 of the wire.
bool ShouldMigrate(uint64_t size_bytes) {
  return size_bytes >= kLeastMigratingBytes && session.ServerKnows(7);
}

CUresult Reserve(Library* library, uint64_t size_bytes) {
  // A reload keeps the addresses, which the program may still hold; only another image needs
  // another size.
  if (library->managed_begin != 0 && library->managed_bytes != size_bytes) ReleaseManaged(library);
  if (library->managed_begin != 0) return CUDA_SUCCESS;
  uint64_t begin;
  // Whatever keeps it from migrating, the arena serves as well.
  const bool migrates =
      ShouldMigrate(size_bytes) && TakeMigrating(size_bytes, CU_MEM_ATTACH_GLOBAL,
                                                 MigratingFor::kLibrary, &begin) == CUDA_SUCCESS;
  if (!migrates) CUDA_RETURN_IF_ERROR(TakePinned(size_bytes, &begin));
  library->managed_begin = begin;
  library->managed_bytes = size_bytes;
  return CUDA_SUCCESS;
}

CUresult LoadThere(const Library* library, ReplyPayload* log) {
  const HomeHold hold(library->managed_begin);
  const uint64_t values = hold.pages() != 0 ? hold.pages() : library->managed_begin;
  // The memory may have been another's.
  memset(reinterpret_cast<void*>(values), 0, library->managed_bytes);
  if (hold.pages() == 0) {
    wire::LibraryPlace::Reply placed;
    return session.Call<wire::LibraryPlace>({IdOf(library), 0, wire::HostPtr{values}}, &placed,
                                            nullptr, 0, log);
  }
  wire::LibraryPlaceApart::Reply placed;
  return session.Call<wire::LibraryPlaceApart>(
      {IdOf(library), 0, wire::DevicePtr{library->managed_begin}, wire::HostPtr{values}}, &placed,
      nullptr, 0, log);
}

}  // namespace

CUresult PlaceManaged(Library* library, uint64_t size_bytes, ReplyPayload* log) {
  CUresult result = Reserve(library, size_bytes);
  if (result != CUDA_SUCCESS) {
    (void)UnloadImage(library);
    return result;
  }
  result = LoadThere(library, log);
  if (result != CUDA_SUCCESS) ReleaseManaged(library);
  return result;
}

void ReleaseManaged(Library* library) {
  if (library->managed_begin == 0) return;
  ForgetManagedVariables(library->managed_begin, library->managed_bytes);
  MayMigrate(library->managed_begin) ? GiveMigrating(library->managed_begin)
                                     : GivePinned(library->managed_begin);
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
