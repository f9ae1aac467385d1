#include "agent/executor/graveyard.h"

namespace gpuloom::executor {

Graveyard::Grave Graveyard::Bury(std::function<void()> undo, std::function<void()> gone) {
  graves_.push_back({++last_, std::move(undo), std::move(gone)});
  return last_;
}

bool Graveyard::Exhume(Grave grave) {
  return std::erase_if(graves_, [&](const Piece& piece) { return piece.number == grave; }) != 0;
}

void Graveyard::Dig() {
  if (digging_ || graves_.empty()) return;
  digging_ = true;
  Piece piece = std::move(graves_.front());
  graves_.pop_front();
  pool_->Post(std::move(piece.undo), [this, gone = std::move(piece.gone)] {
    digging_ = false;
    if (gone) gone();
  });
}

}  // namespace gpuloom::executor
