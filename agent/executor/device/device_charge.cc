// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/device_charge.h"

#include <utility>

#include "agent/executor/session/scheduler_link.h"

namespace gpuloom::executor {

// Does not wait for an answer: no tenant expects the free memory to have grown by now.
DeviceCharge::~DeviceCharge() {
  if (!returned_) scheduler_->Send(control::MemoryReturn{session_id_, memory_id_});
}

void DeviceCharge::Return(std::function<void()> done) {
  returned_ = true;
  scheduler_->Ask(control::MemoryReturn{session_id_, memory_id_},
                  [done = std::move(done)](control::Incoming*) { done(); });
}

// `done` is never called if the scheduler goes away, as the process ends then.
void ChargeDevice(SchedulerLink* scheduler, uint64_t session_id, uint64_t bytes, uint32_t* open,
                  std::function<void(CUresult, DeviceChargeRef)> done) {
  if (bytes == 0) return done(CUDA_SUCCESS, nullptr);
  ++*open;
  scheduler->Ask(control::MemoryCharge{session_id, bytes},
                 [scheduler, session_id, open, done = std::move(done)](control::Incoming* answer) {
                   --*open;
                   control::MemoryGranted granted;
                   if (!answer->As(&granted) || granted.session_id != session_id) {
                     return done(CUDA_ERROR_OUT_OF_MEMORY, nullptr);
                   }
                   const auto result = static_cast<CUresult>(granted.result);
                   if (result != CUDA_SUCCESS) return done(result, nullptr);
                   done(result,
                        std::make_shared<DeviceCharge>(scheduler, session_id, granted.memory_id));
                 });
}

}  // namespace gpuloom::executor
