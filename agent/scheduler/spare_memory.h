// SPDX-License-Identifier: Apache-2.0
// One piece of device memory made ahead, for the program that asks for the same size again and again,
// as allocators that grow do: making a descriptor for it takes longer than all the rest of a grant.
// It is charged to nobody, as it is nobody's yet, and short-lived. One thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "agent/scheduler/device.h"

namespace gpuloom::scheduler {

class SpareMemory {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Larger ones would take too much from the device that nobody may ever want.
  static constexpr uint64_t kLargestBytes = uint64_t{64} << 20;
  // Two requests that are further apart do not belong together; and a spare for which nobody has
  // come in this time is not wanted.
  static constexpr std::chrono::milliseconds kSoon{50};

  explicit SpareMemory(Device* device) : device_(device) {}
  ~SpareMemory() { Drop(); }
  SpareMemory(const SpareMemory&) = delete;
  SpareMemory& operator=(const SpareMemory&) = delete;

  // As Device::CreateMemory, with the spare if it fits.
  [[nodiscard]] uint32_t Take(uint64_t size_bytes, uint64_t* handle, channel::UniqueFd* memory);
  // To be called after a grant: true when another of its size is likely.
  bool Note(uint64_t size_bytes, Time now);
  // Makes one of the size noted last, unless it is there.
  void Make();
  // True when there was one.
  bool Drop();

 private:
  Device* device_;
  uint64_t noted_bytes_ = 0;
  Time noted_{};
  uint64_t size_bytes_ = 0;  // 0: there is none
  uint64_t handle_ = 0;
  channel::UniqueFd memory_;
};

}  // namespace gpuloom::scheduler
