// SPDX-License-Identifier: Apache-2.0
// What a command between tenant and executor is: a type with a name, a request and a reply. AllCommands
// (command_list.h) is the protocol: opcodes, names, sizes, the client's calls, the executor's dispatch, tests and
// fuzzers derive from it. The commands are in headers of their own, named by noun (<noun>_commands.h) as the files of
// shim/ and agent/executor/ that send and handle them. All are plain values.
//
// kReply says whether the tenant waits: commands without a reply are fire and forget, and CompletionRegion::completed
// of their stream shows their completion. A reply carries a CUresult beside Reply (ReplySlot::result); the fields of
// Reply are valid only if that is CUDA_SUCCESS. A command may declare kMaxPayloadBytes: a variable tail after the
// request.
//
// To add one: write it in its noun's header, append it to AllCommands, write its handler in agent/executor
// (without it the build fails), raise kWireMinor, update tests/golden/wire_layout.txt.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/handles.h"

namespace gpuloom::wire {

struct NoReply {};

}  // namespace gpuloom::wire
