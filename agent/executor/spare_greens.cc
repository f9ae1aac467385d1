#include "agent/executor/spare_greens.h"

#include <utility>

namespace gpuloom::executor {

bool SpareGreens::Take(const std::string& key, MadeGreen* made) {
  const auto found = spare_.find(key);
  if (found == spare_.end()) return false;
  *made = found->second;
  spare_.erase(found);
  return true;
}

bool SpareGreens::Count() {
  if (made_ == kMaxMadeGreens) return false;
  ++made_;
  return true;
}

bool SessionGreens::Take(const std::string& key, MadeGreen* made, GiveBack* give_back) {
  const auto found = kept_.find(key);
  if (found == kept_.end()) return false;
  *made = found->second.made;
  *give_back = std::move(found->second.give_back);
  kept_.erase(found);
  return true;
}

void SessionGreens::Keep(const std::string& key, const MadeGreen& made, GiveBack give_back) {
  kept_.emplace(key, Kept{made, std::move(give_back)});
}

void SessionGreens::GiveAll() {
  for (auto& [key, kept] : kept_) {
    spare_->Give(key, kept.made);
    if (kept.give_back) kept.give_back();
  }
  kept_.clear();
}

}  // namespace gpuloom::executor
