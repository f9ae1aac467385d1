// SPDX-License-Identifier: Apache-2.0
// The tenant's end of the command ring. Owned by the shim's session, lives as long as the mappings it was built on.
// Not thread-safe: the session's lock is held for every call. No system call, no allocation; never blocks; if the ring
// is full, Reserve returns nullptr, which is not an error.
//
//   auto* launch = writer.Reserve<Launch>(param_bytes, &payload);   // nullptr: full
//   *launch = {...}; memcpy(payload, params, param_bytes);
//   Ticket ticket = writer.Commit();
//   if (writer.ExecutorSleeps()) RingDoorbell();
#pragma once

#include <atomic>
#include <cstring>
#include <new>

#include "proto/wire/command_list.h"
#include "proto/wire/regions.h"

namespace gpuloom::wire {

class RingWriter {
 public:
  RingWriter() = default;
  RingWriter(CommandRegion* commands, const CompletionRegion* completions)
      : commands_(commands), completions_(completions) {}

  // Reserves one record, its request zero-filled; nothing is visible to the executor before Commit. A command with an
  // empty request must not be written through the pointer: it has no bytes of its own. Returns nullptr if the ring is
  // full. `payload_bytes` must be within C's limit (the caller has checked).
  template <Command C>
  typename C::Request* Reserve(uint32_t payload_bytes, uint8_t** payload,
                               uint16_t reply_slot = kNoReply) {
    const uint32_t size =
        RoundUpToRecord(sizeof(RecordHeader) + kWireSize<typename C::Request> + payload_bytes);
    uint8_t* record = ReserveBytes(size);
    if (record == nullptr) return nullptr;
    const RecordHeader header{size, kOpcode<C>, reply_slot, payload_bytes, 0};
    std::memcpy(record, &header, sizeof(header));
    uint8_t* request = record + sizeof(header);
    if (payload != nullptr) *payload = request + kWireSize<typename C::Request>;
    if constexpr (kWireSize<typename C::Request> == 0) {
      return reinterpret_cast<typename C::Request*>(request);
    } else {
      return ::new (request) typename C::Request{};
    }
  }

  // Publishes the record reserved last. Returns its ticket.
  Ticket Commit() {
    tail_ = reserved_tail_;
    std::atomic_ref<uint32_t>(commands_->head.tail).store(tail_, std::memory_order_release);
    return Ticket{++last_ticket_};
  }

  Ticket last_ticket() const { return Ticket{last_ticket_}; }

  // Separate from the ring: may be called while another thread writes a record.
  void PublishHostFunctionsDone(uint32_t count) {
    std::atomic_ref<uint32_t>(commands_->head.host_functions_done)
        .store(count, std::memory_order_release);
  }

  // Likewise.
  void PublishTextRead(uint64_t bytes) {
    std::atomic_ref<uint64_t>(commands_->head.text_read).store(bytes, std::memory_order_release);
  }

  // Call after Commit or one of these two. The fence orders the store before the load, as the executor's does the
  // other way round.
  bool ExecutorSleeps() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    auto& word = const_cast<uint32_t&>(completions_->head.executor_sleeps);
    return std::atomic_ref<uint32_t>(word).load(std::memory_order_relaxed) != 0;
  }

 private:
  uint8_t* ReserveBytes(uint32_t size) {
    // The tail is always aligned; this mask tells the compiler that a header fits.
    const uint32_t offset = tail_ & (kRingBytes - kRecordAlignment);
    const uint32_t to_end = kRingBytes - offset;
    const uint32_t pad = size <= to_end ? 0 : to_end;
    if (kRingBytes - (tail_ - head_) < pad + size) {
      auto& word = const_cast<uint32_t&>(completions_->head.head);
      head_ = std::atomic_ref<uint32_t>(word).load(std::memory_order_acquire);
      if (kRingBytes - (tail_ - head_) < pad + size) return nullptr;
    }
    if (pad != 0) {
      const RecordHeader header{pad, kPadOpcode, kNoReply, 0, 0};
      std::memcpy(commands_->ring + offset, &header, sizeof(header));
    }
    reserved_tail_ = tail_ + pad + size;
    return commands_->ring + ((tail_ + pad) & (kRingBytes - 1));
  }

  CommandRegion* commands_ = nullptr;
  const CompletionRegion* completions_ = nullptr;
  uint32_t tail_ = 0;           // published
  uint32_t reserved_tail_ = 0;  // with what is being written
  uint32_t head_ = 0;           // the executor's, as last seen
  uint64_t last_ticket_ = 0;
};

}  // namespace gpuloom::wire
