// SPDX-License-Identifier: Apache-2.0
// The shared memory of a session: its layout, who writes what, and with which memory order.
//
// The scheduler creates all regions (memfds, sealed against shrinking, growing and resealing) and hands them to both
// sides. Neither side reads back what it wrote: each keeps its own copies in private memory, because the peer is
// not trusted (by the executor) or may be a newer build (by the tenant).
//
//   CommandRegion     written by the tenant only; the executor maps it read-only
//   +------------------------+----------------------------------------------+
//   | CommandHead (one page) | ring data, kRingBytes, records of 16n bytes   |
//   +------------------------+----------------------------------------------+
//   CompletionRegion  written by the executor only; the tenant maps it read-only
//   +---------------------------+-------------------------+-----------------+
//   | CompletionHead (one page) | completed[kMaxStreams]  | reply slots, text |
//   +---------------------------+-------------------------+-----------------+
//   Arena             written by both, at the same address on both sides: staging, images, pinned host memory
//
// All-zero memory is a valid start: an empty ring, nothing completed, neither side asleep. Plain integers, accessed
// through std::atomic_ref only (RingWriter, RingReader, CompletionWriter, CompletionReader, which say which threads
// may use them). docs/design/wire.md has the grammar and a worked example.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/wire/handles.h"
#include "proto/wire/wire_struct.h"

namespace gpuloom::wire {

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kCacheLineBytes = 64;

// 1 MiB holds about 7,000 launches of 10 arguments: more than any loop we measured issues between
// two waits.
inline constexpr uint32_t kRingBytes = 1u << 20;
static_assert((kRingBytes & (kRingBytes - 1)) == 0);
inline constexpr uint32_t kRecordAlignment = 16;
// A record never wraps (a pad record fills the end), so it must be much smaller than the ring.
inline constexpr uint32_t kMaxRecordBytes = 72u << 10;
static_assert(kMaxRecordBytes * 8 <= kRingBytes);

struct CommandHead {
  // Bytes written so far, running free in 32 bits. Tenant: store release, after the record.
  // Executor: load acquire.
  uint32_t tail;
  uint32_t unused0[15];
  // 1 while a tenant thread sleeps on the doorbell. Tenant: store seq_cst, then looks again, then
  // sleeps. Executor: load seq_cst after each publication; rings when it reads 1.
  uint32_t tenant_sleeps;
  // How many threads wait for a stream, asleep or not. Tenant: relaxed, before it looks. Executor: load relaxed; a
  // hint that only decides how completions are reported.
  uint32_t tenant_waits;
  uint32_t unused1[14];
  // How many functions of HostFunctionBoard have returned, in its order, running free. Tenant: store
  // release, then looks at executor_sleeps. Executor: load acquire.
  uint32_t host_functions_done;
  uint32_t unused2[15];
  // The total number of bytes of TextBoard::data that the tenant has taken. Tenant: store release, then looks at
  // executor_sleeps. Executor: load acquire.
  uint64_t text_read;
  uint32_t unused3[14];
};
static_assert(WireStruct<CommandHead> && sizeof(CommandHead) == 4 * kCacheLineBytes);

struct CompletionHead {
  // Bytes consumed so far, running free. Executor: store release, after copying the records out.
  // Tenant: load acquire.
  uint32_t head;
  uint32_t unused0[15];
  // 1 while the executor sleeps. Executor: store seq_cst, then looks at the tail again, then
  // sleeps. Tenant: load seq_cst after storing the tail; rings when it reads 1.
  uint32_t executor_sleeps;
  uint32_t unused1[15];
  // wire::Fatal. Executor: store release, once. Non-zero: the session is over, nothing more will be
  // read.
  uint32_t fatal;
  // CUresult, sticky: the context is lost (a device fault, or the executor's end). Executor: store
  // release, once.
  uint32_t fault;
  // Errors of fire-and-forget commands that CUDA would have returned from the call itself: the
  // latest code, then the count (store release). The tenant returns the code from its next
  // synchronising call when the count has changed.
  uint32_t async_error_code;
  uint32_t async_error_count;
  uint32_t unused2[12];
};
static_assert(WireStruct<CompletionHead> && sizeof(CompletionHead) == 3 * kCacheLineBytes);

// Functions for the tenant to run now: proto/wire/host_function_commands.h.
inline constexpr uint32_t kMaxDueHostFunctions = 256;

// Written by the executor, in the first page of the completion region.
struct HostFunctionBoard {
  // How many functions have ever become due, running free. Executor: store release, after `due`. Tenant: load acquire.
  uint32_t due_count;
  uint32_t unused[15];
  // The n-th function's id at n % kMaxDueHostFunctions, counted from 0.
  uint64_t due[kMaxDueHostFunctions];
};
static_assert(WireStruct<HostFunctionBoard>);

inline constexpr uint32_t kTextBytes = 64u << 10;
inline constexpr uint32_t kFaultTextBytes = 4032;

// What the tenant's kernels print (vprintf of PTX), and the driver's message about a failed assert.
struct TextBoard {
  // The total bytes of text that belong before every completion published later. Executor: store release, before the
  // completion. The tenant takes them before a call that has waited returns.
  uint64_t announced;
  // How many of them were put into `data`, the n-th at n % kTextBytes, counted from 0; the others follow when the
  // tenant has taken some. Executor: store release, after `data`. Tenant: load acquire.
  uint64_t written;
  // The length of fault_text, for the tenant's standard error. Executor: store release, once, before
  // CompletionHead::fault.
  uint32_t fault_bytes;
  uint32_t unused[11];
  uint8_t fault_text[kFaultTextBytes];
  uint8_t data[kTextBytes];
};
static_assert(WireStruct<TextBoard> && sizeof(TextBoard) == kPageBytes + kTextBytes);

inline constexpr uint32_t kReplySlots =
    64;  // how many threads of one tenant can wait for a reply at once
inline constexpr uint32_t kReplyPayloadBytes = 4096;

struct ReplySlot {
  // Ticket of the answered command. Executor: store release, after everything below. Tenant: load
  // acquire.
  uint64_t ticket;
  uint32_t result;         // CUresult
  uint32_t payload_bytes;  // variable part after `reply`
  uint8_t reply[112];      // Command::Reply
  uint8_t payload[kReplyPayloadBytes];
};
static_assert(WireStruct<ReplySlot> && sizeof(ReplySlot) % kCacheLineBytes == 0);

struct CommandRegion {
  CommandHead head;
  uint8_t unused[kPageBytes - sizeof(CommandHead)];
  uint8_t ring[kRingBytes];
};
static_assert(WireStruct<CommandRegion> && offsetof(CommandRegion, ring) == kPageBytes);

struct CompletionRegion {
  CompletionHead head;
  HostFunctionBoard host_functions;
  uint8_t unused[kPageBytes - sizeof(CompletionHead) - sizeof(HostFunctionBoard)];
  // completed[stream]: the ticket of the newest command of that stream that is done, all older ones
  // of the stream being done too. Executor: store release; where somebody waits its GPU may write it first.
  // Tenant: load acquire. Never decreases.
  uint64_t completed[kMaxStreams];
  ReplySlot replies[kReplySlots];
  TextBoard text;
};
static_assert(WireStruct<CompletionRegion> && offsetof(CompletionRegion, completed) == kPageBytes);

// Precedes each record in the ring.
struct RecordHeader {
  uint32_t size_bytes;     // of the whole record, header and rounding to kRecordAlignment included
  uint16_t opcode;         // position in AllCommands, or kPadOpcode
  uint16_t reply_slot;     // kNoReply, or the slot for the reply
  uint32_t payload_bytes;  // variable part after the request, before rounding
  uint32_t unused;
};
static_assert(WireStruct<RecordHeader> && sizeof(RecordHeader) == kRecordAlignment);

inline constexpr uint16_t kPadOpcode = 0xffff;
inline constexpr uint16_t kNoReply = 0xffff;

constexpr uint32_t RoundUpToRecord(uint32_t bytes) {
  return (bytes + kRecordAlignment - 1) & ~(kRecordAlignment - 1);
}

}  // namespace gpuloom::wire
