// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/stream_charges.h"

#include <utility>

#include "agent/executor/device/device.h"

namespace gpuloom::executor {

DeviceChargeRef StreamCharges::TakeKept(
    std::map<uint64_t, std::vector<DeviceChargeRef>>::iterator of) {
  DeviceChargeRef charge = std::move(of->second.back());
  of->second.pop_back();
  if (of->second.empty()) kept_.erase(of);
  --kept_count_;
  return charge;
}

StreamChargeRef StreamCharges::Take(const Device* device, uint64_t allocation) {
  const auto of = kept_.find(allocation);
  if (of == kept_.end()) return nullptr;
  ++made_;
  return std::make_shared<StreamCharge>(this, device, allocation, TakeKept(of), true);
}

// It has the memory of one that is gone, for which nobody need be charged any more.
void StreamCharge::OnMade() {
  if (std::exchange(is_made_, true)) return;
  ++all_->made_;
  if (all_->kept_count_ != 0) (void)all_->TakeKept(all_->kept_.begin());
}

StreamCharge::~StreamCharge() {
  if (!is_made_) return;
  --all_->made_;
  all_->kept_[allocation_].push_back(std::move(charge_));
  ++all_->kept_count_;
  // Of what a fresh context has nobody pays, and what is there is paid for.
  while (all_->kept_count_ != 0 && all_->kept_count_ + all_->made_ > device_->grown_streams()) {
    (void)all_->TakeKept(all_->kept_.begin());
  }
}

}  // namespace gpuloom::executor
