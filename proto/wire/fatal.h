// SPDX-License-Identifier: Apache-2.0
// Why a session was ended for breaking the protocol. Never a CUDA error: those are returned, and
// the session goes on. The first reason is kept (sticky), written to CompletionRegion::fatal and
// logged once, and the session ends; others go on. Constants and a pure function.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpuloom::wire {

#define GPULOOM_FATALS(X)                                                               \
  X(kNone, "none")                                                                      \
  X(kTailBeyondCapacity, "ring tail is more than the ring's capacity ahead of head")    \
  X(kTailMisaligned, "ring tail is not a multiple of the record alignment")             \
  X(kRecordTruncated, "record reaches beyond the tail or the end of the ring")          \
  X(kRecordSize, "record's size contradicts its opcode")                                \
  X(kUnknownOpcode, "opcode is not in the command list")                                \
  X(kPayloadTooLarge, "payload is larger than its command allows")                      \
  X(kBadReplySlot, "reply slot is out of range, or present or absent against the rule") \
  X(kBadHandle, "handle is out of range, unknown, or in use already")                   \
  X(kBadRange, "address range is not the session's own")                                \
  X(kBadArgument, "argument that no shim of ours would send")

enum class Fatal : uint32_t {
#define X(name, text) name,
  GPULOOM_FATALS(X)
#undef X
};

constexpr std::string_view FatalText(Fatal fatal) {
  switch (fatal) {
#define X(name, text) \
  case Fatal::name:   \
    return text;
    GPULOOM_FATALS(X)
#undef X
  }
  return "unknown reason";
}

}  // namespace gpuloom::wire
