// SPDX-License-Identifier: Apache-2.0
#include "proto/channel/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

namespace gpuloom::channel {
namespace {

// glibc's memfd_create is newer than that of some containers, and old headers lack the constants.
constexpr unsigned kMemfdCloexec = 1;
constexpr unsigned kMemfdAllowSealing = 2;
constexpr int kAddSeals = 1033;
constexpr int kGetSeals = 1034;
constexpr int kSealSeal = 1;
constexpr int kSealSize = 2 | 4;  // F_SEAL_SHRINK, F_SEAL_GROW
constexpr int kSealFutureWrite = 16;
constexpr int kMapFixedNoReplace = 0x100000;

}  // namespace

UniqueFd MakeSealedMemory(const char* name, size_t size_bytes) {
  UniqueFd memory = MakeFixedSizeMemory(name, size_bytes);
  if (memory.valid() && fcntl(memory.get(), kAddSeals, kSealSeal) != 0) return UniqueFd();
  return memory;
}

bool SealWriters(int memory) { return fcntl(memory, kAddSeals, kSealFutureWrite | kSealSeal) == 0; }

UniqueFd MakeFixedSizeMemory(const char* name, size_t size_bytes) {
  UniqueFd memory(
      static_cast<int>(syscall(SYS_memfd_create, name, kMemfdCloexec | kMemfdAllowSealing)));
  if (!memory.valid()) return UniqueFd();
  // Before the seals, which allow no other size.
  if (ftruncate(memory.get(), static_cast<off_t>(size_bytes)) != 0) return UniqueFd();
  if (fcntl(memory.get(), kAddSeals, kSealSize) != 0) return UniqueFd();
  return memory;
}

UniqueFd ReopenReadOnly(int memory) {
  char path[64];
  // A duplicate would share the descriptor's access; opening the file anew gives one of its own.
  snprintf(path, sizeof(path), "/proc/self/fd/%d", memory);
  return UniqueFd(open(path, O_RDONLY | O_CLOEXEC));
}

bool IsSealedMemory(int memory, size_t size_bytes) {
  const int seals = fcntl(memory, kGetSeals);
  // Other files than memfds have no seals (EINVAL).
  if (seals < 0 || (seals & kSealSize) != kSealSize) return false;
  struct stat status;
  return fstat(memory, &status) == 0 && status.st_size >= 0 &&
         static_cast<size_t>(status.st_size) >= size_bytes;
}

Mapping::Mapping(Mapping&& other) noexcept : data_(other.data_), size_bytes_(other.size_bytes_) {
  other.data_ = nullptr;
  other.size_bytes_ = 0;
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    Unmap();
    data_ = other.data_;
    size_bytes_ = other.size_bytes_;
    other.data_ = nullptr;
    other.size_bytes_ = 0;
  }
  return *this;
}

bool Mapping::MapWith(void* hint, int flags, int memory, size_t size_bytes, int protection) {
  Unmap();
  void* data = mmap(hint, size_bytes, protection, flags, memory, 0);
  if (data == MAP_FAILED) return false;
  if (hint != nullptr && data != hint) {  // kernels before 4.17 take MAP_FIXED_NOREPLACE for a hint
    munmap(data, size_bytes);
    errno = EEXIST;
    return false;
  }
  data_ = static_cast<uint8_t*>(data);
  size_bytes_ = size_bytes;
  return true;
}

bool Mapping::Map(int memory, size_t size_bytes, Access access) {
  return MapWith(nullptr, MAP_SHARED, memory, size_bytes,
                 access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE);
}

bool Mapping::MapAt(uint64_t address, int memory, size_t size_bytes, Access access) {
  return MapWith(reinterpret_cast<void*>(address), MAP_SHARED | MAP_NORESERVE | kMapFixedNoReplace,
                 memory, size_bytes,
                 access == Access::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE);
}

bool Mapping::ReserveAt(uint64_t address, size_t size_bytes) {
  if (!MapWith(reinterpret_cast<void*>(address),
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | kMapFixedNoReplace, -1, size_bytes,
               PROT_NONE)) {
    return false;
  }
  // The kernel's own core dumps leave untouched memory out anyway; a debugger's might not.
  madvise(data_, size_bytes_, MADV_DONTDUMP);
  return true;
}

void Mapping::DontFork() {
  if (data_ != nullptr) madvise(data_, size_bytes_, MADV_DONTFORK);
}

void Mapping::Unmap() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
  data_ = nullptr;
  size_bytes_ = 0;
}

}  // namespace gpuloom::channel
