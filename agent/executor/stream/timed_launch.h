// SPDX-License-Identifier: Apache-2.0
// A launch into an idle stream that the device times, too, to find out how much of the time that the host measures is
// the latency of launches (agent/arbiter/round_trip.h). One at a time for a session; ring thread only.
//
//   timed.Begin(device, stream, now) ; launch ; timed.Launched(point, since, now)     the point's event has timing
//   … the point is reached: timed.Take(point, now, &seen, &worked)
#pragma once

#include <cstdint>
#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/stream/point.h"

namespace gpuloom::executor {

class TimedLaunch {
 public:
  TimedLaunch() = default;
  ~TimedLaunch() { GiveBack(); }
  TimedLaunch(const TimedLaunch&) = delete;
  TimedLaunch& operator=(const TimedLaunch&) = delete;

  bool any() const { return before_ != nullptr; }
  // Returns false where CUDA does not let it be timed. `device` outlives this.
  bool Begin(Device* device, CUstream stream, uint64_t now_ns, uint64_t (*clock)()) {
    device_ = device;
    CUevent event = nullptr;
    if (!device->HasSpareEvent(/*timing=*/true, Device::EventUse::kMark) ||
        device->TakeEvent(/*timing=*/true, &event) != CUDA_SUCCESS) {
      return false;
    }
    before_ = event;
    if (device->Judge(device->cuda().cuEventRecord(before_, stream)) != CUDA_SUCCESS) {
      GiveBack();
      return false;
    }
    recorded_ns_ = clock();
    ours_ns_ = recorded_ns_ - now_ns;
    return true;
  }
  // `since_ns`: when the launch begins to count as submitted. `point` is behind it.
  void Launched(PointRef point, uint64_t since_ns, uint64_t now_ns) {
    point_ = std::move(point);
    since_ns_ = since_ns;
    // The device had reached the event before the launch came.
    launching_ns_ = now_ns - recorded_ns_;
  }
  // Returns false if `point` is not the timed launch's, or its times are not known.
  bool Take(const PointRef& point, uint64_t now_ns, uint64_t* seen_ns, uint64_t* worked_ns) {
    if (point_ == nullptr || point != point_) return false;
    float ms = 0;
    const CUresult result = device_->cuda().cuEventElapsedTime(&ms, before_, point->event);
    GiveBack();
    if (result != CUDA_SUCCESS || ms < 0) return false;
    const auto elapsed_ns = static_cast<uint64_t>(static_cast<double>(ms) * 1e6);
    if (elapsed_ns < launching_ns_ || now_ns < since_ns_ + ours_ns_) return false;
    *worked_ns = elapsed_ns - launching_ns_;
    *seen_ns = now_ns - since_ns_ - ours_ns_;
    return true;
  }

 private:
  void GiveBack() {
    if (before_ != nullptr) device_->GiveEvent(/*timing=*/true, std::exchange(before_, nullptr));
    point_.reset();
  }

  Device* device_ = nullptr;
  CUevent before_ = nullptr;  // null: none is timed
  PointRef point_;
  uint64_t since_ns_ = 0;
  uint64_t recorded_ns_ = 0;
  uint64_t ours_ns_ = 0;  // what recording took, which launches that are not timed do not pay
  // From the recording of `before_` until CUDA had taken the launch.
  uint64_t launching_ns_ = 0;
};

}  // namespace gpuloom::executor
