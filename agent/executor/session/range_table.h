// SPDX-License-Identifier: Apache-2.0
// Disjoint address ranges of a session, for validating what its tenant names. Pure bookkeeping;
// ring thread only. Sizes are bytes; no input overflows. However many ranges there are, adjacent or
// not, every operation takes about one lookup.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

namespace gpuloom::executor {

class RangeTable {
 public:
  // Returns false if the range is empty, wraps around, or overlaps an existing one.
  [[nodiscard]] bool Add(uint64_t begin, uint64_t size_bytes) {
    if (size_bytes == 0 || begin + size_bytes < begin || Overlaps(begin, size_bytes)) return false;
    ranges_.emplace(begin, size_bytes);
    auto next = runs_.lower_bound(begin);
    if (next != runs_.end() && next->first == begin + size_bytes) {
      size_bytes += next->second;
      next = runs_.erase(next);
    }
    if (next != runs_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == begin) {
        before->second += size_bytes;
        return true;
      }
    }
    runs_.emplace_hint(next, begin, size_bytes);
    return true;
  }

  // Size of the range that begins exactly here, 0 if there is none.
  uint64_t SizeAt(uint64_t begin_untrusted) const {
    const auto it = ranges_.find(begin_untrusted);
    return it == ranges_.end() ? 0 : it->second;
  }

  bool Remove(uint64_t begin_untrusted) {
    const auto it = ranges_.find(begin_untrusted);
    if (it == ranges_.end()) return false;
    const auto [begin, size_bytes] = *it;
    ranges_.erase(it);
    const auto run = std::prev(runs_.upper_bound(begin));
    const uint64_t before_bytes = begin - run->first;
    const uint64_t behind_bytes = run->second - before_bytes - size_bytes;
    if (behind_bytes != 0) runs_.emplace_hint(std::next(run), begin + size_bytes, behind_bytes);
    if (before_bytes != 0) {
      run->second = before_bytes;
    } else {
      runs_.erase(run);
    }
    return true;
  }

  bool Overlaps(uint64_t begin_untrusted, uint64_t size_bytes_untrusted) const {
    if (size_bytes_untrusted == 0) return false;
    uint64_t last = 0;
    if (__builtin_add_overflow(begin_untrusted, size_bytes_untrusted - 1, &last)) return true;
    auto it = ranges_.upper_bound(last);
    if (it == ranges_.begin()) return false;
    --it;
    return it->first + (it->second - 1) >= begin_untrusted;
  }

  // Returns true if every byte lies in a range of the table; these may be several adjacent ranges.
  // For size 0 the end of a range counts as inside.
  bool Contains(uint64_t begin_untrusted, uint64_t size_bytes_untrusted) const {
    auto run = runs_.upper_bound(begin_untrusted);
    if (run == runs_.begin()) return false;
    --run;
    const uint64_t offset = begin_untrusted - run->first;
    return offset <= run->second && size_bytes_untrusted <= run->second - offset;
  }

  bool empty() const { return ranges_.empty(); }
  auto begin() const { return ranges_.begin(); }
  auto end() const { return ranges_.end(); }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin → size
  std::map<uint64_t, uint64_t> runs_;    // the same, with adjacent ranges merged
};

}  // namespace gpuloom::executor
