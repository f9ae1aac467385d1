// SPDX-License-Identifier: Apache-2.0
// Objects under ids chosen by a tenant. Pages are allocated where ids are used, so a hostile choice
// of ids costs at most one page of pointers each. Owns its objects; ring thread only. Id 0 is never
// valid.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace gpuloom::executor {

template <typename Id, typename T, uint32_t kLimit>
class IdTable {
 public:
  // Returns the object, or nullptr if the id is out of range or unknown.
  T* Find(Id id_untrusted) const {
    const auto id = static_cast<uint32_t>(id_untrusted);
    if (id >= kLimit || id / kPageEntries >= pages_.size()) return nullptr;
    const auto& page = pages_[id / kPageEntries];
    return page == nullptr ? nullptr : (*page)[id % kPageEntries].get();
  }

  // Returns the new object, or nullptr if the id is 0, out of range, or in use.
  template <typename... Arguments>
  T* Add(Id id_untrusted, Arguments&&... arguments) {
    const auto id = static_cast<uint32_t>(id_untrusted);
    if (id == 0 || id >= kLimit || Find(id_untrusted) != nullptr) return nullptr;
    if (id / kPageEntries >= pages_.size()) pages_.resize(id / kPageEntries + 1);
    auto& page = pages_[id / kPageEntries];
    if (page == nullptr) page = std::make_unique<Page>();
    (*page)[id % kPageEntries] = std::make_unique<T>(static_cast<Arguments&&>(arguments)...);
    any_ = kPageEntries;
    ++size_;
    return (*page)[id % kPageEntries].get();
  }

  // Removes and returns the object; nullptr if there is none.
  std::unique_ptr<T> Take(Id id_untrusted) {
    if (Find(id_untrusted) == nullptr) return nullptr;
    const auto id = static_cast<uint32_t>(id_untrusted);
    --size_;
    return std::move((*pages_[id / kPageEntries])[id % kPageEntries]);
  }

  template <typename F>
  void ForEach(F visit) const {
    for (const auto& page : pages_) {
      if (page == nullptr) continue;
      for (const auto& object : *page) {
        if (object != nullptr) visit(*object);
      }
    }
  }

  // Removes and returns some object; nullptr if there is none.
  std::unique_ptr<T> TakeAny() {
    for (; !pages_.empty(); pages_.pop_back(), any_ = kPageEntries) {
      if (pages_.back() == nullptr) continue;
      while (any_ != 0) {
        auto& object = (*pages_.back())[--any_];
        if (object == nullptr) continue;
        --size_;
        return std::move(object);
      }
    }
    return nullptr;
  }

  void Clear() {
    pages_.clear();
    size_ = 0;
  }
  uint32_t size() const { return size_; }

 private:
  static constexpr uint32_t kPageEntries = 1024;
  using Page = std::array<std::unique_ptr<T>, kPageEntries>;
  std::vector<std::unique_ptr<Page>> pages_;
  uint32_t size_ = 0;
  uint32_t any_ = kPageEntries;  // TakeAny has taken the last page's entries from here on
};

}  // namespace gpuloom::executor
