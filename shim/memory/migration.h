// SPDX-License-Identifier: Apache-2.0
// Managed memory that migrates between host and device (docs/design/managed-memory.md). Program and device have it at
// one address. The program finds pages of the arena there; the device finds memory of its own, or the same pages.
//
// Where the device has memory of its own, each chunk is at one side: at home the program may touch it; away the device
// has the newest copy, and a touch waits for the program's work, brings the chunk home and goes on (page_faults.h).
// Before the program's next work everything at home is sent away.
//
//   const MigrationHold hold;           // before a launch, which may use all of it
//   const MigrationUse use(to, from);   // before work that names what it uses
//   CUDA_RETURN_IF_ERROR(hold.result());
//   … write the work into the ring …
//
// The caller or our thread sends and fetches everything, through a stream of our own; it has arrived when the
// function returns. Safe from any thread. No thread may touch migrating memory while it holds one of our locks, so
// memory that is read under the ring's lock is touched before.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

// Smaller allocations stay in host memory: most of what program and kernels wait for together is small.
inline constexpr uint64_t kLeastMigratingBytes = 1u << 20;

// Whose an allocation is: the program's, or a library's for its managed variables, whose addresses outlive contexts.
enum class MigratingFor : bool { kProgram, kLibrary };

// NOT_SUPPORTED where memory cannot migrate: with an older node, without page faults for this process (logged once),
// or at the program's request.
[[nodiscard]] CUresult TakeMigrating(uint64_t size_bytes, unsigned flags, MigratingFor owner,
                                     uint64_t* begin);
// The device must have finished with it.
void GiveMigrating(uint64_t begin);
// For a reset of the context, before its streams end: gives all that is the program's, and brings the rest home.
void EndMigrating();

// Makes the memory accessible to the device, for callers that pass it an address. False if there is no memory.
[[nodiscard]] bool MapMigrating(uint64_t begin);

// Advice, prefetches and attachments of the program, for [address, address + size_bytes) in one allocation.
[[nodiscard]] CUresult PrefetchMigrating(uint64_t address, uint64_t size_bytes, bool to_device);
[[nodiscard]] CUresult PreferHost(uint64_t begin, bool on);
void AttachMigrating(uint64_t begin, unsigned flags, wire::StreamId stream);
// Call it when the stream ends: memory that is attached to it waits for all work again.
void DetachMigrating(wire::StreamId stream);

// Whether the device finds any of it in host memory.
[[nodiscard]] bool AnyMigratingInHostMemory();

// Frees device memory for an allocation that found none: ranges of together at least this size go home for good. False
// if there was none. Must not be called with physical_lock held.
[[nodiscard]] bool MigrateHome(uint64_t size_bytes);
// Lives while a host function of the program, or a wait for a value that the program writes, is put into a stream.
// Such a stream does not go on until the program has done something, and for that the program may touch memory that
// would wait for the stream. So from then on the device finds all migrating memory in host memory, and also what is
// allocated before all streams are idle.
class WaitForProgram {
 public:
  // `waits`: otherwise it does nothing.
  explicit WaitForProgram(bool waits = true);
  ~WaitForProgram();
  WaitForProgram(const WaitForProgram&) = delete;
  WaitForProgram& operator=(const WaitForProgram&) = delete;

  CUresult result() const { return result_; }

 private:
  const bool waits_;
  CUresult result_ = CUDA_SUCCESS;
};

namespace internal {
extern std::atomic<bool> anything_migrates;
// The range of addresses in which all of it lies.
extern std::atomic<uint64_t> space_begin;
extern std::atomic<uint64_t> space_bytes;
}  // namespace internal

// Whether there is any such memory.
inline bool AnythingMigrates() {
  return internal::anything_migrates.load(std::memory_order_relaxed);
}
inline bool MayMigrate(uint64_t address) {
  return address - internal::space_begin.load(std::memory_order_relaxed) <
         internal::space_bytes.load(std::memory_order_relaxed);
}

// For work that may use all migrating memory, such as a launch: while it lives nothing comes home, so it must end as
// soon as the work is in the ring, and its owner must do nothing else meanwhile.
class MigrationHold {
 public:
  MigrationHold() {
    if (AnythingMigrates()) [[unlikely]] {
      Begin();
    }
  }
  ~MigrationHold() {
    if (locked_) [[unlikely]] {
      End();
    }
  }
  MigrationHold(const MigrationHold&) = delete;
  MigrationHold& operator=(const MigrationHold&) = delete;

  // OUT_OF_MEMORY, or the session's end.
  CUresult result() const { return result_; }

 private:
  void Begin();
  void End();

  bool locked_ = false;
  CUresult result_ = CUDA_SUCCESS;
};

// For work that names the memory it uses, such as a copy: while it lives, none of that memory comes home. Its owner may
// wait.
class MigrationUse {
 public:
  explicit MigrationUse(uint64_t to, uint64_t from = 0) {
    if (AnythingMigrates() && (MayMigrate(to) || MayMigrate(from))) [[unlikely]] {
      Begin(to, from);
    }
  }
  ~MigrationUse() {
    if (any()) [[unlikely]] {
      End();
    }
  }
  MigrationUse(const MigrationUse&) = delete;
  MigrationUse& operator=(const MigrationUse&) = delete;

  // Whether any of it migrates.
  bool any() const { return (used_[0] | used_[1]) != 0; }
  CUresult result() const { return result_; }

 private:
  void Begin(uint64_t to, uint64_t from);
  void End();

  uint64_t used_[2] = {0, 0};  // the ranges' serials
  CUresult result_ = CUDA_SUCCESS;
};

// Lives while the executor writes initial values of a library's variables, whose kernels nobody can use yet: they are at
// home and stay there, where a launch of others' kernels would send them away half written.
class HomeHold {
 public:
  explicit HomeHold(uint64_t begin);
  ~HomeHold();
  HomeHold(const HomeHold&) = delete;
  HomeHold& operator=(const HomeHold&) = delete;

  // Where they are in the arena: never hidden, and the program sees what is written there. 0: they do not migrate.
  uint64_t pages() const { return pages_; }

 private:
  const uint64_t begin_;
  uint64_t pages_ = 0;
};

}  // namespace gpuloom
