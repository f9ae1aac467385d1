// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/spare_greens.h"

#include <utility>

namespace gpuloom::executor {

bool SpareGreens::Take(const std::string& key, MadeGreen* made) {
  const auto found = spare_.find(key);
  if (found == spare_.end()) return false;
  *made = found->second;
  spare_.erase(found);
  return true;
}

// A few tenants can use up most places for ever, since none is destroyed; the last ones are for
// those that have had few made.
bool SpareGreens::Count(const std::string& tenant) {
  const auto known = made_of_.find(tenant);
  const uint32_t made = known == made_of_.end() ? 0 : known->second;
  if (made_ == kMaxMadeGreens || made >= kMaxMadeOfTenant ||
      (made_ >= kMaxMadeGreens - kKeptForFew && made >= kFewMade)) {
    return false;
  }
  ++made_;
  ++made_of_[tenant];
  return true;
}

// It was not made after all.
void SpareGreens::Discount(const std::string& tenant) {
  --made_;
  if (--made_of_[tenant] == 0) made_of_.erase(tenant);
}

bool SessionGreens::Take(const std::string& key, MadeGreen* made, DeviceChargeRef* charge) {
  const auto found = kept_.find(key);
  if (found == kept_.end()) return false;
  *made = found->second.made;
  *charge = std::move(found->second.charge);
  kept_.erase(found);
  return true;
}

// Kept with its charge: the device memory is in use as before.
void SessionGreens::Keep(const std::string& key, const MadeGreen& made, DeviceChargeRef charge) {
  kept_.emplace(key, Kept{made, std::move(charge)});
}

// The charges go back to the scheduler with `kept_`; a session that takes one of these contexts is
// charged anew.
void SessionGreens::GiveAll() {
  for (const auto& [key, kept] : kept_) spare_->Give(key, kept.made);
  kept_.clear();
}

}  // namespace gpuloom::executor
