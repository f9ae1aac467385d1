// SPDX-License-Identifier: Apache-2.0
// Values that a library keeps per context, keyed by an address of its own: cudart has one per copy
// and context, and reads it at the start of *every* runtime call. So reading takes no lock and
// allocates nothing (a few nanoseconds); writing takes a short lock.
//
// Owns nothing it stores. All functions are safe from any thread. The whole object is
// zero-initialised and needs no constructor, so it can be a plain global in a tenant's process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/sync/mutex.h"

namespace gpuloom {

class ContextStorage {
 public:
  // Called with the context, the key and the value when the context is reset or destroyed.
  using Destructor = void (*)(uint64_t context, uint64_t key, uint64_t value);

  // A process has some ten copies of cudart, each with one key per device in use: far below this.
  static constexpr size_t kCapacity = 1024;

  [[nodiscard]] bool Get(uint64_t context, uint64_t key, uint64_t* value) const;
  // Replaces an existing value without calling its destructor. Returns false if the table is full.
  [[nodiscard]] bool Put(uint64_t context, uint64_t key, uint64_t value, Destructor destructor);
  // Removes the value without calling the destructor. Returns false if there was none.
  [[nodiscard]] bool Delete(uint64_t context, uint64_t key);
  // Removes every value of the context and calls its destructor, without the lock: destructors may
  // use the storage.
  void ResetContext(uint64_t context);

  // Around a fork: in a child that has a write's first half only, readers would wait for its end for ever.
  void LockForFork() GPULOOM_ACQUIRE(lock_) { lock_.Lock(); }
  void UnlockAfterFork() GPULOOM_RELEASE(lock_) { lock_.Unlock(); }

 private:
  // Open addressing. `sequence` is 0 for a slot never used (ends a search), odd while it is being
  // written, else even; a reader that sees it change reads again. A deleted entry keeps its slot,
  // with context 0, until it is used again.
  struct Entry {
    std::atomic<uint32_t> sequence;
    std::atomic<uint64_t> context;
    std::atomic<uint64_t> key;
    std::atomic<uint64_t> value;
    Destructor destructor;  // with lock_
  };

  static size_t Home(uint64_t context, uint64_t key);
  // The entry of (context, key) or null.
  Entry* FindLocked(uint64_t context, uint64_t key) GPULOOM_REQUIRES(lock_);
  void WriteLocked(Entry* entry, uint64_t context, uint64_t key, uint64_t value,
                   Destructor destructor) GPULOOM_REQUIRES(lock_);

  Entry entries_[kCapacity] = {};
  Mutex lock_;
};

}  // namespace gpuloom
