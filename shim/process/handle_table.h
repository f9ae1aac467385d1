// SPDX-License-Identifier: Apache-2.0
// Objects that a program holds by opaque handle. A handle is the object's address inside a range
// reserved for its kind, so that any value a program passes can be checked without touching memory
// that is not ours; the object's index in the range is its id on the wire.
//
// T is plain and begins with `std::atomic<uint32_t> alive`. Capacity counts ids; id 0 is never
// used. Safe from any thread, but what needs the owner's lock is passed the one that is held.
// Constant-initialised, never destroyed.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "shim/process/futex.h"
#include "shim/process/growing.h"

namespace gpuloom {

template <typename T, uint32_t kCapacity>
class HandleTable {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  // A new object with value-initialised fields, or nullptr: out of memory, or all ids are in use.
  T* Take([[maybe_unused]] const Lock& held) GPULOOM_REQUIRES(held) {
    uint32_t id;
    if (free_.count() != 0) {
      id = free_[free_.count() - 1];
      free_.Remove(free_.count() - 1);
    } else {
      id = used() + 1;
      if (id >= kCapacity || !MakeRoom(id)) return nullptr;
      used_.store(id, std::memory_order_release);
    }
    T* object = ::new (base_.load(std::memory_order_relaxed) + id) T();
    object->alive.store(1, std::memory_order_release);
    return object;
  }

  // The handle is invalid from now on. Without `reuse` the id is not used again before Reuse(id). Of several threads
  // that end one object the first gets true; the others change nothing.
  bool Give(const Lock& held, T* object, bool reuse = true) GPULOOM_REQUIRES(held) {
    if (object->alive.exchange(0, std::memory_order_acq_rel) == 0) return false;
    if (reuse) Reuse(held, IdOf(object));
    return true;
  }
  // Makes the id available again. If there is no memory to remember it, it is lost: there are many.
  void Reuse([[maybe_unused]] const Lock& held, uint32_t id) GPULOOM_REQUIRES(held) {
    (void)free_.Push(id);
  }

  // The object, or nullptr if `handle` is not a live handle of this kind.
  T* Find(const void* handle) const {
    T* object = SlotOf(handle);
    return object != nullptr && object->alive.load(std::memory_order_acquire) != 0 ? object
                                                                                   : nullptr;
  }
  // The place of an object of this kind that has ended or was never made; otherwise nullptr. Its id may be reused at
  // any time, so its fields are only a hint.
  const T* FindGone(const void* handle) const {
    const T* object = SlotOf(handle);
    return object != nullptr && object->alive.load(std::memory_order_acquire) == 0 ? object
                                                                                   : nullptr;
  }

  uint32_t IdOf(const T* object) const {
    return static_cast<uint32_t>(object - base_.load(std::memory_order_relaxed));
  }
  // Ids 1 … used() have been used at some time.
  uint32_t used() const { return used_.load(std::memory_order_acquire); }
  // The live object with this id, or nullptr.
  T* At(uint32_t id) const { return Find(base_.load(std::memory_order_relaxed) + id); }

 private:
  static constexpr size_t kPageBytes = 4096;
  static constexpr size_t kStepBytes = 64 * kPageBytes;
  static constexpr size_t kReservedBytes =
      (size_t{kCapacity} * sizeof(T) + kStepBytes - 1) / kStepBytes * kStepBytes;

  T* SlotOf(const void* handle) const {
    T* const base = base_.load(std::memory_order_acquire);
    const uintptr_t offset =
        reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(base);
    if (base == nullptr ||
        offset >= uintptr_t{usable_.load(std::memory_order_acquire)} * sizeof(T) ||
        offset % sizeof(T) != 0) {
      return nullptr;
    }
    return base + offset / sizeof(T);
  }

  bool MakeRoom(uint32_t id) {
    if (base_.load(std::memory_order_relaxed) == nullptr) {
      void* memory = mmap(nullptr, kReservedBytes, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) return false;
      base_.store(static_cast<T*>(memory), std::memory_order_release);
    }
    const size_t needed_bytes = (size_t{id} + 1) * sizeof(T);
    if (needed_bytes > open_bytes_) {
      const size_t open_bytes = (needed_bytes + kStepBytes - 1) / kStepBytes * kStepBytes;
      char* begin = reinterpret_cast<char*>(base_.load(std::memory_order_relaxed));
      if (mprotect(begin + open_bytes_, open_bytes - open_bytes_, PROT_READ | PROT_WRITE) != 0) {
        return false;
      }
      open_bytes_ = open_bytes;
      // Fresh pages are zero: objects there are not alive.
      usable_.store(static_cast<uint32_t>(open_bytes / sizeof(T)), std::memory_order_release);
    }
    return true;
  }

  std::atomic<T*> base_{nullptr};
  std::atomic<uint32_t> usable_{0};  // objects whose memory may be touched
  size_t open_bytes_ = 0;
  std::atomic<uint32_t> used_{0};
  Growing<uint32_t> free_;
};

}  // namespace gpuloom
