// SPDX-License-Identifier: Apache-2.0
// What a tenant reports to the node about itself, for the operator only.
#pragma once

#include "proto/wire/command.h"

namespace gpuloom::wire {

inline constexpr uint32_t kMaxReportBytes = 96;

// The program has called or requested something that is not supported: its name (payload, no NUL).
// The shim reports each name once per process; the executor passes on a bounded number.
struct UnsupportedCall {
  static constexpr std::string_view kName = "UnsupportedCall";
  static constexpr bool kReply = false;
  static constexpr uint32_t kMaxPayloadBytes = kMaxReportBytes;
  struct Request {};
  using Reply = NoReply;
};

}  // namespace gpuloom::wire
