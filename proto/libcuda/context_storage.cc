// SPDX-License-Identifier: Apache-2.0
// A seqlock per entry: writers, one at a time, make the sequence odd, write and make it even;
// readers copy and look again. A slot that was used once never becomes one never used, because a
// search ends there.
#include "proto/libcuda/context_storage.h"

namespace gpuloom {

static_assert((ContextStorage::kCapacity & (ContextStorage::kCapacity - 1)) == 0);

size_t ContextStorage::Home(uint64_t context, uint64_t key) {
  // Fibonacci hashing: both are addresses, whose low bits hardly differ.
  const uint64_t mixed = (context ^ (key << 1)) * 0x9e3779b97f4a7c15;
  return (mixed >> 40) & (kCapacity - 1);
}

bool ContextStorage::Get(uint64_t context, uint64_t key, uint64_t* value) const {
  size_t index = Home(context, key);
  for (size_t probed = 0; probed < kCapacity;) {
    const Entry& entry = entries_[index];
    const uint32_t before = entry.sequence.load(std::memory_order_acquire);
    if (before == 0) return false;
    if (before % 2 == 0) {
      // Acquire on each: the second look at the sequence must not come before them.
      const uint64_t found_context = entry.context.load(std::memory_order_acquire);
      const uint64_t found_key = entry.key.load(std::memory_order_acquire);
      const uint64_t found_value = entry.value.load(std::memory_order_acquire);
      // If not, or if it is being written, the same slot is looked at again: a writer has few
      // stores to do.
      if (entry.sequence.load(std::memory_order_relaxed) == before) {
        if (found_context == context && found_key == key) {
          *value = found_value;
          return true;
        }
        ++probed;
        index = (index + 1) & (kCapacity - 1);
      }
    }
  }
  return false;
}

ContextStorage::Entry* ContextStorage::FindLocked(uint64_t context, uint64_t key) {
  size_t index = Home(context, key);
  for (size_t probed = 0; probed < kCapacity; ++probed) {
    Entry& entry = entries_[index];
    if (entry.sequence.load(std::memory_order_relaxed) == 0) return nullptr;
    if (entry.context.load(std::memory_order_relaxed) == context &&
        entry.key.load(std::memory_order_relaxed) == key) {
      return &entry;
    }
    index = (index + 1) & (kCapacity - 1);
  }
  return nullptr;
}

void ContextStorage::WriteLocked(Entry* entry, uint64_t context, uint64_t key, uint64_t value,
                                 Destructor destructor) {
  const uint32_t sequence = entry->sequence.load(std::memory_order_relaxed);
  entry->sequence.store(sequence + 1, std::memory_order_relaxed);
  // Release on each: who sees a new field also sees the odd sequence before it.
  entry->context.store(context, std::memory_order_release);
  entry->key.store(key, std::memory_order_release);
  entry->value.store(value, std::memory_order_release);
  entry->destructor = destructor;
  // Never back to 0, which means "never used".
  const uint32_t next = sequence + 2 != 0 ? sequence + 2 : 2;
  entry->sequence.store(next, std::memory_order_release);
}

bool ContextStorage::Put(uint64_t context, uint64_t key, uint64_t value, Destructor destructor) {
  const MutexLock lock(lock_);
  Entry* target = FindLocked(context, key);
  size_t index = Home(context, key);
  for (size_t probed = 0; target == nullptr && probed < kCapacity; ++probed) {
    Entry& entry = entries_[index];
    // The first slot of the search that is free, never used or deleted: searches come by here.
    if (entry.context.load(std::memory_order_relaxed) == 0) target = &entry;
    index = (index + 1) & (kCapacity - 1);
  }
  if (target != nullptr) WriteLocked(target, context, key, value, destructor);
  return target != nullptr;
}

bool ContextStorage::Delete(uint64_t context, uint64_t key) {
  const MutexLock lock(lock_);
  Entry* entry = FindLocked(context, key);
  if (entry != nullptr) WriteLocked(entry, 0, 0, 0, nullptr);
  return entry != nullptr;
}

// One entry at a time, because a destructor may put or delete others.
void ContextStorage::ResetContext(uint64_t context) {
  for (Entry& entry : entries_) {
    lock_.Lock();
    const bool mine = entry.context.load(std::memory_order_relaxed) == context && context != 0;
    const uint64_t key = entry.key.load(std::memory_order_relaxed);
    const uint64_t value = entry.value.load(std::memory_order_relaxed);
    const Destructor destructor = entry.destructor;
    if (mine) WriteLocked(&entry, 0, 0, 0, nullptr);
    lock_.Unlock();
    if (mine && destructor != nullptr) destructor(context, key, value);
  }
}

}  // namespace gpuloom
