// An array that grows, for plain values: malloc behind it, no exceptions, no destructor, all-zero
// is empty. The owner calls Free when it goes; lists that live as long as the process never do.
// Not thread-safe.
#pragma once

#include <stdlib.h>
#include <string.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gpuloom {

template <typename T>
class Growing {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  // False when there is no memory; nothing has changed then.
  [[nodiscard]] bool Insert(size_t position, const T& value) {
    if (count_ == capacity_) {
      const size_t capacity = capacity_ == 0 ? 16 : capacity_ * 2;
      void* data = realloc(data_, capacity * sizeof(T));
      if (data == nullptr) return false;
      data_ = static_cast<T*>(data);
      capacity_ = capacity;
    }
    if (position != count_) {
      memmove(data_ + position + 1, data_ + position, (count_ - position) * sizeof(T));
    }
    data_[position] = value;
    ++count_;
    return true;
  }
  [[nodiscard]] bool Push(const T& value) { return Insert(count_, value); }
  void Remove(size_t position) {
    --count_;
    if (position != count_) {
      memmove(data_ + position, data_ + position + 1, (count_ - position) * sizeof(T));
    }
  }
  void Clear() { count_ = 0; }
  void Free() {
    free(data_);
    data_ = nullptr;
    count_ = capacity_ = 0;
  }

  size_t count() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + count_; }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
  size_t capacity_ = 0;
};

// Values with `uint64_t begin, size_bytes` sorted by begin: the last that begins at or before
// `address`, or count().
template <typename T>
size_t FindAtOrBefore(const Growing<T>& ranges, uint64_t address) {
  size_t low = 0;
  size_t high = ranges.count();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (ranges[middle].begin <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == 0 ? ranges.count() : low - 1;
}

// The range that holds all of [address, address + size_bytes), or nullptr.
template <typename T>
T* FindRange(Growing<T>& ranges, uint64_t address, uint64_t size_bytes) {
  const size_t i = FindAtOrBefore(ranges, address);
  if (i == ranges.count()) return nullptr;
  T& range = ranges[i];
  const uint64_t offset = address - range.begin;
  if (offset >= range.size_bytes || size_bytes > range.size_bytes - offset) return nullptr;
  return &range;
}

template <typename T>
[[nodiscard]] bool InsertSorted(Growing<T>* ranges, const T& range) {
  const size_t i = FindAtOrBefore(*ranges, range.begin);
  return ranges->Insert(i == ranges->count() ? 0 : i + 1, range);
}

}  // namespace gpuloom
