// SPDX-License-Identifier: Apache-2.0
// The tenant's view of a CompletionRegion: what is done, what was answered, what has failed. Safe
// from many threads: only loads, no system call.
#pragma once

#include <atomic>

#include "proto/wire/fatal.h"
#include "proto/wire/regions.h"

namespace gpuloom::wire {

class CompletionReader {
 public:
  CompletionReader() = default;
  explicit CompletionReader(const CompletionRegion* region) : region_(region) {}

  bool Done(StreamId stream, Ticket ticket) const {
    return Load64(region_->completed[static_cast<uint32_t>(stream)]) >=
           static_cast<uint64_t>(ticket);
  }

  // The reply to `ticket`, or nullptr if it has not arrived. Valid until the slot is reused.
  const ReplySlot* FindReply(uint16_t slot, Ticket ticket) const {
    const ReplySlot& reply = region_->replies[slot];
    return Load64(reply.ticket) == static_cast<uint64_t>(ticket) ? &reply : nullptr;
  }

  // How many host functions have ever become due; the id of the n-th, counted from 0, while it is
  // one of the newest kMaxDueHostFunctions.
  uint32_t host_functions_due() const { return Load32(region_->host_functions.due_count); }
  uint64_t HostFunction(uint32_t n) const {
    return Load64(region_->host_functions.due[n % kMaxDueHostFunctions]);
  }

  // See TextBoard.
  uint64_t text_announced() const { return Load64(region_->text.announced); }
  uint64_t text_written() const { return Load64(region_->text.written); }
  const uint8_t* text() const { return region_->text.data; }
  uint32_t fault_text_bytes() const { return Load32(region_->text.fault_bytes); }
  const uint8_t* fault_text() const { return region_->text.fault_text; }

  Fatal fatal() const { return static_cast<Fatal>(Load32(region_->head.fatal)); }
  uint32_t fault() const { return Load32(region_->head.fault); }
  uint32_t async_error_count() const { return Load32(region_->head.async_error_count); }
  uint32_t async_error_code() const { return Load32(region_->head.async_error_code); }

 private:
  // atomic_ref<const T> does not exist before C++26; a load does not write.
  static uint64_t Load64(const uint64_t& word) {
    return std::atomic_ref<uint64_t>(const_cast<uint64_t&>(word)).load(std::memory_order_acquire);
  }
  static uint32_t Load32(const uint32_t& word) {
    return std::atomic_ref<uint32_t>(const_cast<uint32_t&>(word)).load(std::memory_order_acquire);
  }

  const CompletionRegion* region_ = nullptr;
};

}  // namespace gpuloom::wire
