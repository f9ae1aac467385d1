// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/shown_pages.h"

#include <sys/mman.h>

#include "proto/cuda/return_if_error.h"
#include "shim/memory/host_arena.h"

namespace gpuloom {
namespace {

void* At(uint64_t address) { return reinterpret_cast<void*>(address); }

// An old size of 0 makes mremap map shared memory a second time.
bool Show(uint64_t begin, uint64_t pages, uint64_t size_bytes) {
  return mremap(At(pages), 0, size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, At(begin)) != MAP_FAILED;
}

}  // namespace

// If mmap fails, the kernel has no memory for another mapping: see the header.
void CloseAddresses(uint64_t begin, uint64_t size_bytes) {
  (void)mmap(At(begin), size_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  madvise(At(begin), size_bytes, MADV_DONTFORK);
}

CUresult TakeShownPages(uint64_t begin, uint64_t size_bytes, uint64_t* pages) {
  CUDA_RETURN_IF_ERROR(TakeRegion(size_bytes, begin, pages));
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (Show(begin, *pages, size_bytes)) {
    // Populated through the address that the program will use.
    if (PopulateRegion(begin, size_bytes)) result = PinRegion(*pages);
    if (result != CUDA_SUCCESS) CloseAddresses(begin, size_bytes);
  }
  if (result != CUDA_SUCCESS) GiveRegion(*pages);
  return result;
}

void GiveShownPages(uint64_t begin, uint64_t size_bytes, uint64_t pages) {
  CloseAddresses(begin, size_bytes);
  UnpinRegion(pages);
  GiveRegion(pages);
}

}  // namespace gpuloom
