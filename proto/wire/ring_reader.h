// SPDX-License-Identifier: Apache-2.0
// The executor's end of the command ring. Owned by the executor's session; used by its ring thread
// only.
//
// The tenant can change every byte of the region at any time, so a record is first copied to
// private memory, then checked, then handed out: no handler ever sees shared memory. Any violation
// is Fatal and sticky; nothing here blocks, throws or trusts.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <span>

#include "proto/wire/command_list.h"
#include "proto/wire/fatal.h"
#include "proto/wire/regions.h"

namespace gpuloom::wire {

// One command, in private memory, its sizes checked against its opcode. Valid until the next call
// of RingReader::Next.
struct Record {
  uint16_t opcode;
  uint16_t reply_slot;  // < kReplySlots when the command has a reply
  Ticket ticket;
  const uint8_t* request;  // kCommands[opcode].request_bytes, aligned to kRecordAlignment
  std::span<const uint8_t> payload;
};

class RingReader {
 public:
  // `head` is where the consumed position is published (CompletionHead::head).
  RingReader(const CommandRegion* commands_untrusted, CompletionHead* completion)
      : commands_untrusted_(commands_untrusted), completion_(completion), copy_(new Copied) {}

  enum class Status { kRecord, kEmpty, kFatal };

  Status Next(Record* record) {
    if (fatal_ != Fatal::kNone) return Status::kFatal;
    for (;;) {
      const uint32_t tail_untrusted = LoadTail();
      const uint32_t pending = tail_untrusted - head_;
      if (pending == 0) return Status::kEmpty;
      if (pending > kRingBytes) return Fail(Fatal::kTailBeyondCapacity);
      if (pending % kRecordAlignment != 0) return Fail(Fatal::kTailMisaligned);
      const uint32_t offset = head_ & (kRingBytes - 1);
      const uint32_t contiguous = kRingBytes - offset;
      const uint8_t* source_untrusted = commands_untrusted_->ring + offset;

      RecordHeader header;
      CopyOut(&header, source_untrusted, sizeof(header));
      if (header.size_bytes < sizeof(header) || header.size_bytes % kRecordAlignment != 0 ||
          header.size_bytes > pending || header.size_bytes > contiguous) {
        return Fail(Fatal::kRecordTruncated);
      }
      if (header.opcode == kPadOpcode) {
        // A pad fills the ring's end where a record did not fit, so it is shorter than a record can
        // be and never follows another: anything else would let a tenant make us spin on nothing.
        if (header.size_bytes != contiguous || header.size_bytes >= kMaxRecordBytes) {
          return Fail(Fatal::kRecordSize);
        }
        Consume(header.size_bytes);
        continue;
      }
      if (header.opcode >= kCommands.size()) {
        bad_opcode_ = header.opcode;
        return Fail(Fatal::kUnknownOpcode);
      }
      bad_opcode_ = header.opcode;
      const CommandInfo& info = kCommands[header.opcode];
      if (header.payload_bytes > info.max_payload_bytes) return Fail(Fatal::kPayloadTooLarge);
      if (header.size_bytes !=
          RoundUpToRecord(sizeof(header) + info.request_bytes + header.payload_bytes)) {
        return Fail(Fatal::kRecordSize);
      }
      if (info.has_reply ? header.reply_slot >= kReplySlots : header.reply_slot != kNoReply) {
        return Fail(Fatal::kBadReplySlot);
      }
      CopyOut(copy_->bytes, source_untrusted + sizeof(header), header.size_bytes - sizeof(header));
      Consume(header.size_bytes);
      *record =
          Record{header.opcode, header.reply_slot, Ticket{++last_ticket_}, copy_->bytes,
                 std::span<const uint8_t>(copy_->bytes + info.request_bytes, header.payload_bytes)};
      return Status::kRecord;
    }
  }

  // To sleep: announce, look again, sleep. Returns false if there is work (and takes the
  // announcement back).
  bool AnnounceSleep() {
    Announce();
    if (LoadTail() == head_) return true;
    Awake();
    return false;
  }
  // The same without looking again, for a caller that must check more than the ring.
  void Announce() {
    std::atomic_ref<uint32_t>(completion_->executor_sleeps).store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void Awake() {
    std::atomic_ref<uint32_t>(completion_->executor_sleeps).store(0, std::memory_order_relaxed);
  }

  bool HasWork() const { return fatal_ == Fatal::kNone && LoadTail() != head_; }

  // Ends the session for an error found after the ring (a handle, a range). Only the first reason
  // is kept.
  Status Fail(Fatal fatal) {
    if (fatal_ == Fatal::kNone) {
      fatal_ = fatal;
      std::atomic_ref<uint32_t>(completion_->fatal)
          .store(static_cast<uint32_t>(fatal), std::memory_order_release);
    }
    return Status::kFatal;
  }
  Fatal fatal() const { return fatal_; }
  // The opcode of the record read last, for the log line with fatal().
  uint16_t last_opcode_untrusted() const { return bad_opcode_; }

 private:
  struct alignas(kRecordAlignment) Copied {
    uint8_t bytes[kMaxRecordBytes];
  };
  static_assert(kMaxRecordBytes <= kRingBytes);

  uint32_t LoadTail() const {
    auto& word = const_cast<uint32_t&>(commands_untrusted_->head.tail);
    return std::atomic_ref<uint32_t>(word).load(std::memory_order_acquire);
  }

  // Word-wise relaxed atomic loads: the peer may be writing right now, and a plain memcpy may read
  // a byte twice.
  static void CopyOut(void* to, const uint8_t* from_untrusted, uint32_t bytes) {
    auto* out = static_cast<uint8_t*>(to);
    for (uint32_t i = 0; i < bytes; i += sizeof(uint64_t)) {
      auto& word = *reinterpret_cast<uint64_t*>(const_cast<uint8_t*>(from_untrusted + i));
      const uint64_t value = std::atomic_ref<uint64_t>(word).load(std::memory_order_relaxed);
      std::memcpy(out + i, &value, sizeof(value));
    }
  }

  void Consume(uint32_t bytes) {
    head_ += bytes;
    std::atomic_ref<uint32_t>(completion_->head).store(head_, std::memory_order_release);
  }

  const CommandRegion* commands_untrusted_;
  CompletionHead* completion_;
  std::unique_ptr<Copied> copy_;
  uint32_t head_ = 0;  // private: what the tenant could change is never read back
  uint64_t last_ticket_ = 0;
  Fatal fatal_ = Fatal::kNone;
  uint16_t bad_opcode_ = kPadOpcode;
};

}  // namespace gpuloom::wire
