// SPDX-License-Identifier: Apache-2.0
// The executor's write access to a CompletionRegion. Owned by the executor's session. Calls for one
// stream or one reply slot come from one thread at a time; different streams and slots may be
// written by different threads. Never reads the region back: nothing here depends on what a tenant
// could have done to it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "proto/wire/command_list.h"
#include "proto/wire/regions.h"

namespace gpuloom::wire {

class CompletionWriter {
 public:
  CompletionWriter(CompletionRegion* region, const CommandRegion* commands_untrusted)
      : region_(region), commands_untrusted_(commands_untrusted) {}

  void PublishCompleted(StreamId stream, Ticket ticket) {
    std::atomic_ref<uint64_t>(region_->completed[static_cast<uint32_t>(stream)])
        .store(static_cast<uint64_t>(ticket), std::memory_order_release);
  }

  // The same where the device may write the word meanwhile; never lowers it.
  void RaiseCompleted(StreamId stream, Ticket ticket) {
    std::atomic_ref<uint64_t> word(region_->completed[static_cast<uint32_t>(stream)]);
    uint64_t seen = word.load(std::memory_order_relaxed);
    while (seen < static_cast<uint64_t>(ticket) &&
           !word.compare_exchange_weak(seen, static_cast<uint64_t>(ticket),
                                       std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

  // `payload` beyond kReplyPayloadBytes is cut.
  template <Command C>
  void PublishReply(uint16_t slot, Ticket ticket, uint32_t result, const typename C::Reply& reply,
                    std::span<const uint8_t> payload = {}) {
    static_assert(C::kReply);
    ReplySlot& out = region_->replies[slot];
    out.result = result;
    out.payload_bytes = static_cast<uint32_t>(std::min<size_t>(payload.size(), kReplyPayloadBytes));
    if constexpr (kWireSize<typename C::Reply> != 0) std::memcpy(out.reply, &reply, sizeof(reply));
    if (!payload.empty()) std::memcpy(out.payload, payload.data(), out.payload_bytes);
    std::atomic_ref<uint64_t>(out.ticket)
        .store(static_cast<uint64_t>(ticket), std::memory_order_release);
  }

  // The context is lost with this CUresult. Only the first one is kept.
  void PublishFault(uint32_t result) {
    if (fault_ != 0) return;
    fault_ = result;
    std::atomic_ref<uint32_t>(region_->head.fault).store(result, std::memory_order_release);
  }

  void PublishAsyncError(uint32_t result) {
    std::atomic_ref<uint32_t>(region_->head.async_error_code)
        .store(result, std::memory_order_relaxed);
    std::atomic_ref<uint32_t>(region_->head.async_error_count)
        .store(++async_errors_, std::memory_order_release);
  }

  // The caller ensures that at most kMaxDueHostFunctions are due and not done.
  void PublishHostFunction(uint64_t id) {
    HostFunctionBoard& board = region_->host_functions;
    std::atomic_ref<uint64_t>(board.due[host_functions_due_ % kMaxDueHostFunctions])
        .store(id, std::memory_order_relaxed);
    std::atomic_ref<uint32_t>(board.due_count)
        .store(++host_functions_due_, std::memory_order_release);
  }
  uint32_t HostFunctionsDoneUntrusted() const {
    auto& word = const_cast<uint32_t&>(commands_untrusted_->head.host_functions_done);
    return std::atomic_ref<uint32_t>(word).load(std::memory_order_acquire);
  }

  // `bytes` is the total amount of text so far.
  void AnnounceText(uint64_t bytes) {
    std::atomic_ref<uint64_t>(region_->text.announced).store(bytes, std::memory_order_release);
  }
  // Writes as much of `text` as the board has room for; returns how much.
  size_t WriteText(std::span<const char> text) {
    auto& word = const_cast<uint64_t&>(commands_untrusted_->head.text_read);
    const uint64_t read_untrusted = std::atomic_ref<uint64_t>(word).load(std::memory_order_acquire);
    // A tenant that lies about what it has read garbles its own text.
    const uint64_t unread = text_written_ - read_untrusted;
    const size_t bytes =
        unread > kTextBytes ? 0 : std::min<size_t>(kTextBytes - unread, text.size());
    if (bytes == 0) return 0;
    TextBoard& board = region_->text;
    const size_t at = text_written_ % kTextBytes;
    const size_t to_end = std::min<size_t>(bytes, kTextBytes - at);
    std::memcpy(board.data + at, text.data(), to_end);
    std::memcpy(board.data, text.data() + to_end, bytes - to_end);
    text_written_ += bytes;
    std::atomic_ref<uint64_t>(board.written).store(text_written_, std::memory_order_release);
    return bytes;
  }
  // Call before PublishFault, once; what is beyond kFaultTextBytes is cut.
  void PublishFaultText(std::span<const char> text) {
    const auto bytes = static_cast<uint32_t>(std::min<size_t>(text.size(), kFaultTextBytes));
    if (bytes != 0) std::memcpy(region_->text.fault_text, text.data(), bytes);
    std::atomic_ref<uint32_t>(region_->text.fault_bytes).store(bytes, std::memory_order_release);
  }

  // Whether a tenant's thread waits for a stream.
  bool TenantWaits() const {
    auto& word = const_cast<uint32_t&>(commands_untrusted_->head.tenant_waits);
    return std::atomic_ref<uint32_t>(word).load(std::memory_order_relaxed) != 0;
  }

  // Call after publishing. The fence orders the publication before the load, as the tenant's does
  // the other way round.
  bool TenantSleeps() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    auto& word = const_cast<uint32_t&>(commands_untrusted_->head.tenant_sleeps);
    return std::atomic_ref<uint32_t>(word).load(std::memory_order_relaxed) != 0;
  }

 private:
  CompletionRegion* region_;
  const CommandRegion* commands_untrusted_;
  uint32_t fault_ = 0;
  uint32_t async_errors_ = 0;
  uint32_t host_functions_due_ = 0;
  uint64_t text_written_ = 0;
};

}  // namespace gpuloom::wire
