// SPDX-License-Identifier: Apache-2.0
// Functions of the program that run in a stream's order (cuLaunchHostFunc, cuStreamAddCallback, host nodes of
// graphs). They run in the tenant's process; the executor only knows their numbers.
//
//   tenant:    keeps the function under an id of its own, then posts the command that will request it
//              (HostFunction; a graph's launch)
//   executor:  when everything before it is done, writes the id to HostFunctionBoard::due and counts due_count;
//              holds back what comes behind it, in its own queues
//   tenant:    one thread runs the functions in the board's order and counts
//              CommandHead::host_functions_done; rings when the executor sleeps
//   executor:  releases what waited for the functions up to that count
//
// The answer is a word and not a command, because a ring is not read while too much waits behind a function. At most
// kMaxDueHostFunctions are due and not done. Ids are only echoed: nothing on the executor's side depends on them.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

// The stream goes on when the tenant has run the function.
struct HostFunction {
  static constexpr std::string_view kName = "HostFunction";
  static constexpr bool kReply = false;
  struct Request {
    uint64_t id;
    StreamId stream;
    uint32_t unused;
  };
  using Reply = NoReply;
};

}  // namespace gpuloom::wire
