// SPDX-License-Identifier: Apache-2.0
// One piece of device memory created ahead, for programs that request the same size again and
// again, as growing allocators do: creating its descriptor takes longer than all the rest of a
// grant. It is charged to no tenant, because it belongs to none and is short-lived. Owned by
// MemoryBook; the scheduler's thread only. The device must outlive it. Failing to create a spare is
// not an error.
#pragma once

#include <chrono>
#include <cstdint>

#include "agent/scheduler/device.h"

namespace gpuloom::scheduler {

class SpareMemory {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A larger spare would take too much memory from the device that nobody may ever request.
  static constexpr uint64_t kLargestBytes = uint64_t{64} << 20;
  // Requests further apart are unrelated, and a spare that is not taken within this time is not
  // needed.
  static constexpr std::chrono::milliseconds kSoon{50};

  explicit SpareMemory(Device* device) : device_(device) {}
  ~SpareMemory() { Drop(); }
  SpareMemory(const SpareMemory&) = delete;
  SpareMemory& operator=(const SpareMemory&) = delete;

  // Like Device::CreateMemory, but uses the spare if it fits.
  [[nodiscard]] uint32_t Take(uint64_t size_bytes, uint64_t* handle, channel::UniqueFd* memory);
  // Call after a grant. Returns true if another request of its size is likely.
  bool Note(uint64_t size_bytes, Time now);
  // Creates a spare of the size noted last, unless there is one.
  void Make();
  // Releases the spare. Returns true if there was one.
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
