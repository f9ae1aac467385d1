// SPDX-License-Identifier: Apache-2.0
// A binary heap of tree nodes that can be moved, and removed from the middle. The nodes hold their
// keys and places; the heap holds their numbers. Plain value, owned by its tree; one thread.
// InsertOrMove allocates beyond what Reserve has reserved.
//
// Keys wrap: of two keys, the one that lies behind by less than 2^63 is the smaller one. Of equal
// keys the lower number goes first, so that the same events give the same order. `steps` counts
// every level that is looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gpuloom::arbiter {

inline constexpr uint32_t kNotInHeap = UINT32_MAX;

// `Access(node)` gives {key, place&}.
template <typename Access>
class NodeHeap {
 public:
  bool empty() const { return nodes_.empty(); }
  size_t size() const { return nodes_.size(); }
  uint32_t top() const { return nodes_.front(); }
  // Makes room, so that InsertOrMove does not allocate later.
  void Reserve(size_t count) {
    if (count > nodes_.capacity()) nodes_.reserve(count * 2);
  }

  // Puts the node where its key belongs, whether it is in the heap or not.
  void InsertOrMove(uint32_t node, Access access, uint64_t* steps) {
    uint32_t at = access.place(node);
    if (at == kNotInHeap) {
      at = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back(node);
      access.place(node) = at;
    }
    Down(Up(at, access, steps), access, steps);
  }

  void Remove(uint32_t node, Access access, uint64_t* steps) {
    const uint32_t at = access.place(node);
    if (at == kNotInHeap) return;
    access.place(node) = kNotInHeap;
    const uint32_t last = nodes_.back();
    nodes_.pop_back();
    if (last == node) return;
    nodes_[at] = last;
    access.place(last) = at;
    Down(Up(at, access, steps), access, steps);
  }

 private:
  bool Less(uint32_t a, uint32_t b, Access access) const {
    const auto difference = static_cast<int64_t>(access.key(a) - access.key(b));
    return difference != 0 ? difference < 0 : a < b;
  }

  void Swap(uint32_t a, uint32_t b, Access access) {
    std::swap(nodes_[a], nodes_[b]);
    access.place(nodes_[a]) = a;
    access.place(nodes_[b]) = b;
  }

  uint32_t Up(uint32_t at, Access access, uint64_t* steps) {
    for (; at != 0 && Less(nodes_[at], nodes_[(at - 1) / 2], access); at = (at - 1) / 2) {
      ++*steps;
      Swap(at, (at - 1) / 2, access);
    }
    return at;
  }

  void Down(uint32_t at, Access access, uint64_t* steps) {
    for (;;) {
      ++*steps;
      uint32_t least = at;
      for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < nodes_.size(); ++child) {
        if (Less(nodes_[child], nodes_[least], access)) least = child;
      }
      if (least == at) return;
      Swap(at, least, access);
      at = least;
    }
  }

  std::vector<uint32_t> nodes_;
};

}  // namespace gpuloom::arbiter
