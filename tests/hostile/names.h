// SPDX-License-Identifier: Apache-2.0
// Ids that a random tenant has given: a few of each kind, so that they are soon used again. One
// thread's.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tests/sequences/random.h"

namespace gpuloom::testing {

class Names {
 public:
  using Random = sequences::Random;
  // 1 … count, or so many from `first` on.
  explicit Names(uint32_t count, uint32_t first = 1) : first_(first), count_(count) {}

  // One that names nothing; 0: all do.
  uint32_t New(Random* random) const {
    std::vector<uint32_t> free;
    for (uint32_t id = first_; id < first_ + count_; ++id) {
      if (!used_.contains(id)) free.push_back(id);
    }
    return free.empty() ? 0 : random->Of(free);
  }
  // One that names something; 0: none does.
  uint32_t Used(Random* random) const {
    std::vector<uint32_t> known;
    for (const auto& [id, use] : used_) {
      if (use.answered) known.push_back(id);
    }
    return known.empty() ? 0 : random->Of(known);
  }
  // `answered`: it may be used at once. `owner` is what it goes with.
  void Add(uint32_t id, bool answered, uint32_t owner = 0) { used_[id] = {answered, owner}; }
  void Answer(uint32_t id, bool made) {
    const auto found = used_.find(id);
    if (found == used_.end()) return;
    found->second.answered = true;
    if (!made) used_.erase(found);
  }
  void Drop(uint32_t id) { used_.erase(id); }
  void DropOf(uint32_t owner) {
    std::erase_if(used_, [owner](const auto& entry) { return entry.second.owner == owner; });
  }

 private:
  struct Use {
    bool answered;
    uint32_t owner;
  };
  uint32_t first_;
  uint32_t count_;
  std::map<uint32_t, Use> used_;
};

}  // namespace gpuloom::testing
