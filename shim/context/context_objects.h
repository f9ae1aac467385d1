// SPDX-License-Identifier: Apache-2.0
// What was made in created contexts, so that it ends with them (created_context.cc). A hash table by kind and handle,
// whose entries are also lists, one for each context: a program may have very many events, and destroys each of them by
// itself, or all with their context.
//
// Not thread-safe: the owner's lock is held. Constant-initialised, never destroyed. A context must outlive its objects;
// its newest_object is this table's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/context/context.h"
#include "shim/process/growing.h"

namespace gpuloom {

class ContextObjects {
 public:
  struct Object {
    Context* context;
    uint64_t handle;
    ContextObjectKind kind;
  };

  // False if out of memory; then nothing has changed. The same object may be added again.
  [[nodiscard]] bool Add(const Object& object) {
    if (count_ == bucket_count_ && !GrowBuckets() && bucket_count_ == 0) return false;
    uint32_t place = free_;
    if (place != 0) {
      free_ = At(place).next;
    } else {
      if (!entries_.Push({})) return false;
      place = static_cast<uint32_t>(entries_.count());
    }
    uint32_t* const first = &BucketOf(object.kind, object.handle);
    At(place) = {object, object.context->newest_object, 0, *first};
    *first = place;
    if (At(place).older != 0) At(At(place).older).newer = place;
    object.context->newest_object = place;
    ++count_;
    return true;
  }

  // Of an object that was added repeatedly, the newest entry; of one that was not, nothing.
  void Remove(ContextObjectKind kind, uint64_t handle) {
    if (count_ == 0) return;
    if (uint32_t* const link = LinkTo(kind, handle); *link != 0) Take(link);
  }

  // The context's newest object. False: it has none.
  [[nodiscard]] bool TakeNewest(const Context* context, Object* object) {
    const uint32_t place = context->newest_object;
    if (place == 0) return false;
    *object = At(place).object;
    uint32_t* link = &BucketOf(object->kind, object->handle);
    while (*link != place) link = &At(*link).next;
    Take(link);
    return true;
  }

  // nullptr: it was made in no created context.
  Context* ContextOf(ContextObjectKind kind, uint64_t handle) {
    if (count_ == 0) return nullptr;
    const uint32_t place = *LinkTo(kind, handle);
    return place == 0 ? nullptr : At(place).object.context;
  }

  void Clear() {
    for (const Entry& entry : entries_) {
      if (entry.object.context != nullptr) entry.object.context->newest_object = 0;
    }
    for (uint32_t& first : buckets_) first = 0;
    entries_.Clear();
    free_ = 0;
    count_ = 0;
  }

  size_t count() const { return count_; }

 private:
  // Places are counted from 1.
  struct Entry {
    Object object;          // without a context: free
    uint32_t older, newer;  // of the same context
    uint32_t next;          // of the same bucket, or of the free ones
  };
  static constexpr size_t kFirstBuckets = 64;

  Entry& At(uint32_t place) { return entries_[place - 1]; }

  uint32_t& BucketOf(ContextObjectKind kind, uint64_t handle) {
    const uint64_t mixed = (handle + static_cast<uint64_t>(kind)) * 0x9e3779b97f4a7c15;
    return buckets_[(mixed >> 32) & (bucket_count_ - 1)];
  }

  // What leads to the entry, or the end of its bucket.
  uint32_t* LinkTo(ContextObjectKind kind, uint64_t handle) {
    uint32_t* link = &BucketOf(kind, handle);
    while (*link != 0 && (At(*link).object.kind != kind || At(*link).object.handle != handle)) {
      link = &At(*link).next;
    }
    return link;
  }

  void Take(uint32_t* link) {
    const uint32_t place = *link;
    Entry& entry = At(place);
    *link = entry.next;
    if (entry.older != 0) At(entry.older).newer = entry.newer;
    (entry.newer != 0 ? At(entry.newer).older : entry.object.context->newest_object) = entry.older;
    entry = {{}, 0, 0, free_};
    free_ = place;
    --count_;
  }

  // Twice as many buckets: the entries of each go to it or to its new twin, in their order. Without memory the buckets
  // become longer instead.
  bool GrowBuckets() {
    const size_t before = bucket_count_;
    const size_t wanted = before == 0 ? kFirstBuckets : before * 2;
    while (buckets_.count() < wanted) {
      if (!buckets_.Push(0)) return false;
    }
    bucket_count_ = wanted;
    for (size_t i = 0; i < before; ++i) {
      uint32_t place = buckets_[i];
      uint32_t* ends[] = {&buckets_[i], &buckets_[i + before]};
      while (place != 0) {
        Entry& entry = At(place);
        uint32_t*& end =
            ends[&BucketOf(entry.object.kind, entry.object.handle) == &buckets_[i] ? 0 : 1];
        *end = place;
        end = &entry.next;
        place = entry.next;
      }
      *ends[0] = *ends[1] = 0;
    }
    return true;
  }

  Growing<Entry> entries_;
  Growing<uint32_t> buckets_;  // each the first of its entries; the newest comes first
  size_t bucket_count_ = 0;    // a power of two
  size_t count_ = 0;
  uint32_t free_ = 0;
};

}  // namespace gpuloom
