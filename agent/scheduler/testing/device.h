// SPDX-License-Identifier: Apache-2.0
// For tests and fuzzers: a device of 16 GiB whose memory is only memfds. One thread creates and releases memory; the
// counters may be read from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>

#include "agent/scheduler/device.h"

namespace gpuloom::scheduler {

class TestingDevice : public Device {
 public:
  TestingDevice();
  uint32_t CreateMemory(uint64_t size_bytes, uint64_t* handle,
                        channel::UniqueFd* exported) override;
  void ReleaseMemory(uint64_t handle) override;

  std::atomic<int> live{0};                      // pieces of memory that exist
  std::atomic<uint32_t> result{0};               // of CreateMemory
  std::atomic<uint64_t> room_bytes{UINT64_MAX};  // of all pieces together
  std::atomic<int> tries{0};                     // calls of CreateMemory
  std::atomic<bool> stalls{false};               // CreateMemory returns once it does not any more

 private:
  std::map<uint64_t, uint64_t> sizes_;  // by handle
  uint64_t used_bytes_ = 0;
  uint64_t last_handle_ = 0;
};

}  // namespace gpuloom::scheduler
