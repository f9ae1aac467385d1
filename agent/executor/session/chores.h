// SPDX-License-Identifier: Apache-2.0
// Work of one session that grows with what its tenant has made: taking down thousands of objects, say.
// It is done in pieces, as much in a round of the loop as the session's slice has room for, and while there is
// any the session's ring is not read. So it costs its own tenant time and nobody else.
//
// Ring thread only; owned by the session.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>

#include "agent/executor/session/slice.h"

namespace gpuloom::executor {

class Chores {
 public:
  // So many objects are a piece: some tens of microseconds.
  static constexpr size_t kPiece = 128;

  // Does one piece; true when that was the last.
  using Chore = std::function<bool()>;

  // Begins with it at once when nothing stands before it: what is small is done when this returns.
  void Do(Chore chore) {
    if (!waiting_.empty() || !chore()) waiting_.push_back(std::move(chore));
  }
  // True when there was anything to do.
  bool Run(Slice* slice) {
    if (waiting_.empty()) return false;
    do {
      if (!waiting_.front()()) continue;
      waiting_.pop_front();
    } while (!waiting_.empty() && !slice->Over());
    return true;
  }
  bool empty() const { return waiting_.empty(); }

 private:
  std::deque<Chore> waiting_;
};

// Of a table of objects, at the end of what owns it: a piece. True when that was the last.
template <typename Table>
bool DropPiece(Table* table) {
  for (size_t left = Chores::kPiece; left != 0; --left) {
    if (table->TakeAny() == nullptr) return true;
  }
  return false;
}

}  // namespace gpuloom::executor
