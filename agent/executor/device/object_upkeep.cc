// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/object_upkeep.h"

#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/session/work_pool.h"

namespace gpuloom::executor {

void ObjectUpkeep::Look() {
  const Driver& cuda = device_->cuda();
  if (Device::Excess excess = device_->TakeExcess(); !excess.empty()) {
    const size_t streams = excess.streams.size();
    const size_t events = excess.events.size();
    pool_->Post([excess = std::move(excess), &cuda] { excess.Destroy(cuda); },
                [this, streams, events] { device_->OnDestroyed(streams, events); });
  }
  if (prepares_) return;
  const Device::Preparation missing = device_->Missing();
  if (missing.empty()) return;
  prepares_ = true;
  // For no session: all are held for it, as for one that waits for others' work.
  quiet_->Need(
      this, [missing, &cuda] { missing.Make(cuda); },
      [this, missing] {
        prepares_ = false;
        device_->SetPrepared(missing);
      });
}

}  // namespace gpuloom::executor
