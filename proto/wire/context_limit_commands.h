// SPDX-License-Identifier: Apache-2.0
// Requests to the executor's context, which all tenants of the domain share.
#pragma once

#include "proto/wire/command.h"

namespace gpuloom::wire {

// Raises the limit to at least `value`. Limits only grow, while nothing runs, and up to the
// executor's bound; beyond it the answer is CUDA_ERROR_OUT_OF_MEMORY, for stacks INVALID_VALUE.
struct ContextSetLimit {
  static constexpr std::string_view kName = "ContextSetLimit";
  static constexpr bool kReply = true;
  struct Request {
    uint32_t limit;  // CUlimit
    uint32_t unused;
    uint64_t value;
  };
  struct Reply {};
};

}  // namespace gpuloom::wire
