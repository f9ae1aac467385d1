// SPDX-License-Identifier: Apache-2.0
// What the scripted executor keeps of a session.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/channel/unique_fd.h"
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

}  // namespace gpuloom
