// Printed text on its way to one tenant, by way of the session's TextBoard. Ring thread only; owned by
// the session.
#pragma once

#include <string>

#include "proto/wire/completion_writer.h"

namespace gpuloom::executor {

class TextSender {
 public:
  // More than this is not kept for a tenant that does not take it: what comes then is lost, as text
  // is that does not fit into the device's buffer.
  static constexpr size_t kMaxWaitingBytes = 16u << 20;

  explicit TextSender(wire::CompletionWriter* writer) : writer_(writer) {}

  // Before the completion of what printed it is published.
  void Add(std::string_view text) {
    text = text.substr(0, kMaxWaitingBytes - std::min(kMaxWaitingBytes, waiting_.size()));
    if (text.empty()) return;
    waiting_.append(text);
    announced_bytes_ += text.size();
    Poll();
    writer_->AnnounceText(announced_bytes_);
  }

  // Goes on when the tenant has made room. True when something went.
  bool Poll() {
    if (waiting_.empty()) return false;
    const size_t bytes = writer_->WriteText(waiting_);
    waiting_.erase(0, bytes);
    return bytes != 0;
  }
  bool empty() const { return waiting_.empty(); }

 private:
  wire::CompletionWriter* writer_;
  std::string waiting_;
  uint64_t announced_bytes_ = 0;
};

}  // namespace gpuloom::executor
