// SPDX-License-Identifier: Apache-2.0
// A growing array for plain values: uses malloc; no exceptions, no destructor; all-zero is empty. The owner calls Free,
// except for lists that live as long as the process. Not thread-safe.
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
  // False if out of memory; then nothing has changed.
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

}  // namespace gpuloom
