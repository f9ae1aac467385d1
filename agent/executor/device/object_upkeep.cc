// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/object_upkeep.h"

#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/session/work_pool.h"

namespace gpuloom::executor {

void ObjectUpkeep::Look() {
  Device* const device = device_;
  if (Device::Excess excess = device->TakeExcess(); !excess.empty()) {
    pool_->Post([excess = std::move(excess), device] { device->Destroy(excess); }, [] {});
  }
  if (prepares_) return;
  const Device::Preparation missing = device->Missing();
  if (missing.empty()) return;
  prepares_ = true;
  // For no session: all are held for it, as for one that waits for others' work.
  quiet_->Need(
      this, [missing, device] { device->Prepare(missing); },
      [this, missing] {
        prepares_ = false;
        device_->OnPrepared(missing);
      });
}

}  // namespace gpuloom::executor
