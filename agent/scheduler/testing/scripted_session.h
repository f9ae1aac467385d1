// SPDX-License-Identifier: Apache-2.0
// What the scripted executor keeps of a session, and says of one.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/channel/unique_fd.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom {

struct Session {
  channel::UniqueFd doorbell;
  std::vector<uint64_t> memory;
  std::vector<uint64_t> charged;  // of the quota, without memory
  uint64_t kernels = 0;
  bool drains = true;
  bool ends = true;
  bool keeps = false;
  bool hears = true;
  control::AddSession order{};
  bool works = false;
  bool held = false;
  uint32_t hold_request = 0;
  control::TimeUsage time{};
  control::WorkCounts work{};
};

inline control::ExecutorFault FaultOf(uint32_t result, uint64_t session_id) {
  control::ExecutorFault fault = {};
  fault.result = result;
  fault.session_id = session_id;
  fault.launches = 1;
  control::SetText(fault.function, "broken");
  return fault;
}

inline control::LongKernel LongKernelOf(uint64_t kernel, uint64_t session_id) {
  control::LongKernel message = {};
  message.session_id = session_id;
  message.kernel = kernel;
  message.ran_ns = uint64_t{3600} * 1'000'000'000;
  message.launches = 1;
  control::SetText(message.function, "busy\nloop");
  return message;
}

inline control::PartitionPending PendingOf(uint64_t allocation_id, const char* why) {
  control::PartitionPending message = {};
  message.allocation_id = allocation_id;
  control::SetText(message.why, why);
  return message;
}

}  // namespace gpuloom
