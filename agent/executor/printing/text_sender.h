// SPDX-License-Identifier: Apache-2.0
// Printed text on its way to one tenant, through the session's TextBoard. Ring thread only; owned by the session.
#pragma once

#include <deque>
#include <string>

#include "proto/wire/completion_writer.h"

namespace gpuloom::executor {

class TextSender {
 public:
  // Limit for text that the tenant has not taken: text beyond it is lost, as is text that does not
  // fit into the device's buffer.
  static constexpr size_t kMaxWaitingBytes = 16u << 20;

  explicit TextSender(wire::CompletionWriter* writer) : writer_(writer) {}

  // Call before publishing the completion of the work that printed it.
  void Add(std::string text) {
    if (text.size() > kMaxWaitingBytes - waiting_bytes_) {
      text.resize(kMaxWaitingBytes - waiting_bytes_);
    }
    if (text.empty()) return;
    waiting_bytes_ += text.size();
    announced_bytes_ += text.size();
    if (!waiting_.empty() && waiting_.back().size() + text.size() <= wire::kTextBytes) {
      waiting_.back().append(text);
    } else {
      waiting_.push_back(std::move(text));
    }
    Poll();
    writer_->AnnounceText(announced_bytes_);
  }

  // Continues when the tenant has made room, writing at most one board. Returns true if any text was written.
  bool Poll() {
    size_t written = 0;
    while (!waiting_.empty() && written < wire::kTextBytes) {
      const std::string_view text = waiting_.front();
      const size_t bytes = writer_->WriteText(text.substr(begin_));
      if (bytes == 0) break;
      written += bytes;
      begin_ += bytes;
      if (begin_ != text.size()) break;
      waiting_.pop_front();
      begin_ = 0;
    }
    waiting_bytes_ -= written;
    return written != 0;
  }
  bool empty() const { return waiting_.empty(); }

 private:
  wire::CompletionWriter* writer_;
  std::deque<std::string> waiting_;
  size_t begin_ = 0;  // offset into the first waiting text
  size_t waiting_bytes_ = 0;
  uint64_t announced_bytes_ = 0;
};

}  // namespace gpuloom::executor
