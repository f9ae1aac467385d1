// Disjoint address ranges that a session owns, for judging what its tenant names. Pure; used by the
// ring thread only. Sizes are bytes; no input overflows.
#pragma once

#include <cstdint>
#include <map>

namespace gpuloom::executor {

class RangeTable {
 public:
  // False when the range is empty, wraps, or touches one that is there.
  [[nodiscard]] bool Add(uint64_t begin, uint64_t size_bytes) {
    if (size_bytes == 0 || begin + size_bytes < begin || Overlaps(begin, size_bytes)) return false;
    ranges_.emplace(begin, size_bytes);
    return true;
  }

  // The size of the range that begins exactly here, 0 when there is none.
  uint64_t SizeAt(uint64_t begin_untrusted) const {
    const auto it = ranges_.find(begin_untrusted);
    return it == ranges_.end() ? 0 : it->second;
  }

  bool Remove(uint64_t begin_untrusted) { return ranges_.erase(begin_untrusted) != 0; }

  bool Overlaps(uint64_t begin_untrusted, uint64_t size_bytes_untrusted) const {
    if (size_bytes_untrusted == 0) return false;
    uint64_t last = 0;
    if (__builtin_add_overflow(begin_untrusted, size_bytes_untrusted - 1, &last)) return true;
    auto it = ranges_.upper_bound(last);
    if (it == ranges_.begin()) return false;
    --it;
    return it->first + (it->second - 1) >= begin_untrusted;
  }

  // True when ranges of the table, one or several without a gap, hold every byte.
  bool Contains(uint64_t begin_untrusted, uint64_t size_bytes_untrusted) const {
    uint64_t at = begin_untrusted;
    uint64_t left = size_bytes_untrusted;
    auto it = ranges_.upper_bound(at);
    if (it == ranges_.begin()) return false;
    --it;
    for (;;) {
      if (at < it->first || at - it->first >= it->second) {
        // The end of a range belongs to it for a size of nothing.
        return left == 0 && at >= it->first && at - it->first == it->second;
      }
      const uint64_t here = it->second - (at - it->first);
      if (left <= here) return true;
      left -= here;
      at += here;
      if (++it == ranges_.end()) return false;
    }
  }

  bool empty() const { return ranges_.empty(); }
  auto begin() const { return ranges_.begin(); }
  auto end() const { return ranges_.end(); }

 private:
  std::map<uint64_t, uint64_t> ranges_;  // begin → size
};

}  // namespace gpuloom::executor
