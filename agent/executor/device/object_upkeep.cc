// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/object_upkeep.h"

#include <memory>
#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/process/log.h"
#include "agent/executor/session/work_pool.h"

namespace gpuloom::executor {

void ObjectUpkeep::Look(uint64_t now_ns) {
  Device* const device = device_;
  if (Device::Excess excess = device->TakeExcess(); !excess.empty()) {
    pool_->Post([excess = std::move(excess), device] { device->Destroy(excess); }, [] {});
  }
  if (std::exchange(has_refused_, false)) next_ns_ = now_ns + kRefusedPauseNs;
  if (prepares_ || now_ns < next_ns_) return;
  const Device::Preparation missing = device->Missing();
  if (missing.empty()) return;
  prepares_ = true;
  // For no session: all are held for it, as for one that waits for others' work.
  const auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  quiet_->Need(
      this, [missing, device, result] { *result = device->Prepare(missing); },
      [this, missing, result] {
        prepares_ = false;
        device_->OnPrepared(missing);
        has_refused_ = *result != CUDA_SUCCESS;
        LogRefusal(*result);
      });
}

// Once, however often the driver refuses.
void ObjectUpkeep::LogRefusal(CUresult result) {
  if (std::exchange(refusal_, result) == result || result == CUDA_SUCCESS) return;
  Log(LogLevel::kWarning,
      "cuda: making streams and events ahead: %s; programs that need more streams get this error, "
      "those that need more events wait, and the driver is asked again every 5 s; free device "
      "memory",
      device_->NameOf(result));
}

}  // namespace gpuloom::executor
