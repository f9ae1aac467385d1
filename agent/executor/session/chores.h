// SPDX-License-Identifier: Apache-2.0
// Work of one session that grows with what its tenant has created: destroying thousands of objects, for
// example. It is done in pieces, as many per round of the loop as fit into the session's time slice,
// and until it is finished the session's ring is not read. So it costs only its own tenant time.
//
// Owned by the session; ring thread only.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>

namespace gpuloom::executor {

class Slice;

class Chores {
 public:
  // Objects per piece: takes some tens of microseconds.
  static constexpr size_t kPiece = 128;

  // Does one piece; returns true if that was the last.
  using Chore = std::function<bool()>;

  // Begins at once if nothing is queued before it: a small chore is done when this returns.
  void Do(Chore chore) {
    if (!waiting_.empty() || !chore()) waiting_.push_back(std::move(chore));
  }
  // Returns true if there was anything to do.
  bool Run(Slice* slice) { return !waiting_.empty() && RunWaiting(slice); }
  bool empty() const { return waiting_.empty(); }

 private:
  bool RunWaiting(Slice* slice);

  std::deque<Chore> waiting_;
};

// Drops one piece of a table of objects when its owner ends. Returns true if that was the last.
template <typename Table>
bool DropPiece(Table* table) {
  for (size_t left = Chores::kPiece; left != 0; --left) {
    if (table->TakeAny() == nullptr) return true;
  }
  return false;
}

}  // namespace gpuloom::executor
