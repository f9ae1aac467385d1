// SPDX-License-Identifier: Apache-2.0
// Shared memory: sealed memfds, and mappings of them. Free of libstdc++ and exceptions. Only trusted processes make
// regions; no trusted process maps a descriptor made by a tenant. Functions are safe from any thread; descriptors
// that they take stay the caller's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/channel/unique_fd.h"

namespace gpuloom::channel {

// A memfd of exactly `size_bytes`, sparse, sealed against shrinking, growing and further sealing,
// so that no peer can make the other side's mapping fault. Invalid with errno on failure.
[[nodiscard]] UniqueFd MakeSealedMemory(const char* name, size_t size_bytes);

// The same, but open for one more seal: SealWriters. For memory that one trusted peer writes and
// another may only read.
[[nodiscard]] UniqueFd MakeFixedSizeMemory(const char* name, size_t size_bytes);

// From now on no process can create a writable mapping of the memory, through any descriptor: a read-only descriptor
// alone could be reopened for writing through /proc. Existing mappings stay as they are. Returns false with errno on
// kernels before 5.1.
[[nodiscard]] bool SealWriters(int memory);

// The same memory through a read-only descriptor (a mapping of it cannot be made writable).
[[nodiscard]] UniqueFd ReopenReadOnly(int memory);

// Returns true if the descriptor is a memfd of at least `size_bytes` that no process can shrink or grow, so that
// touching a mapping of it cannot fault.
[[nodiscard]] bool IsSealedMemory(int memory, size_t size_bytes);

// Owns one mapping. Move-only; not thread-safe, except that its memory may be used from any thread.
class Mapping {
 public:
  enum class Access { kReadOnly, kReadWrite };

  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping() { Unmap(); }

  // Maps the first `size_bytes` of `memory`. False with errno on failure.
  [[nodiscard]] bool Map(int memory, size_t size_bytes, Access access);
  // The same at a requested address, where nothing may be mapped yet (EEXIST).
  [[nodiscard]] bool MapAt(uint64_t address, int memory, size_t size_bytes, Access access);
  // Reserves addresses without memory behind them (PROT_NONE). Whatever the size, this takes one kernel mapping entry
  // and no page tables, does not count towards overcommit limits and stays out of core dumps. EEXIST if something is
  // mapped there; ENOMEM if the process's address space is limited (RLIMIT_AS), EAGAIN if it locks all its memory and
  // may not lock that much.
  [[nodiscard]] bool ReserveAt(uint64_t address, size_t size_bytes);
  // The child of a fork does not inherit the mapping.
  void DontFork();
  void Unmap();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_bytes_; }

 private:
  [[nodiscard]] bool MapWith(void* hint, int flags, int memory, size_t size_bytes, int protection);

  uint8_t* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// A range of addresses, for checking those that a tenant names.
struct Range {
  uint64_t begin = 0;
  uint64_t size_bytes = 0;

  // Does not overflow for any input.
  constexpr bool Contains(uint64_t address_untrusted, uint64_t bytes_untrusted) const {
    return address_untrusted >= begin && bytes_untrusted <= size_bytes &&
           address_untrusted - begin <= size_bytes - bytes_untrusted;
  }
};

}  // namespace gpuloom::channel
