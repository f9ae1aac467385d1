// What must be undone with calls that may wait for the whole device: unloading modules, unpinning
// host memory. It is kept until nothing of anybody is in flight, and undone one piece at a time on
// a worker, while new work is held back for that moment. At the end of the process the driver does
// it. Ring thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "agent/executor/work_pool.h"

namespace gpuloom::executor {

class Graveyard {
 public:
  explicit Graveyard(WorkPool* pool) : pool_(pool) {}

  using Grave = uint64_t;

  // `undo` runs on a worker and owns what it needs (mappings). `gone`, on the ring thread after it,
  // may be empty.
  Grave Bury(std::function<void()> undo, std::function<void()> gone);
  // Takes a piece back before anything has happened to it. False when its undoing has begun.
  [[nodiscard]] bool Exhume(Grave grave);

  // To be called when nothing is in flight. Starts one piece.
  void Dig();
  // While true, nothing may be handed to CUDA: it would be waited for, and everybody with it.
  bool Digging() const { return digging_; }
  bool empty() const { return graves_.empty(); }

 private:
  struct Piece {
    Grave number;
    std::function<void()> undo;
    std::function<void()> gone;
  };
  WorkPool* pool_;
  std::deque<Piece> graves_;
  Grave last_ = 0;
  bool digging_ = false;
};

}  // namespace gpuloom::executor
