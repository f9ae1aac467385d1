// SPDX-License-Identifier: Apache-2.0
#include "shim/session/backlog.h"

namespace gpuloom {

uint64_t Backlog::Update(uint32_t stream, const wire::CompletionReader& completions,
                         uint64_t newest) {
  OfStream& of = of_[stream];
  const auto is_done = [&](uint64_t ticket) {
    return completions.Done(wire::StreamId{stream}, wire::Ticket{ticket});
  };
  if (is_done(newest)) {
    of.done = of.later = {newest, sent_[stream]};
  } else if (is_done(of.later.ticket)) {
    of.done = of.later;
    of.later = {newest, sent_[stream]};
  }
  return sent_[stream] - of.done.bytes;
}

bool Backlog::Check(uint32_t stream, const wire::CompletionReader& completions,
                    const std::atomic<uint64_t>* newest, uint32_t count) {
  const auto update = [&](uint32_t i) {
    return Update(i, completions, newest[i].load(std::memory_order_relaxed));
  };
  // It is looked at now and then whether they still have much, or for ever after each command would cost a look more.
  if (is_large_ && sent_in_all_ - checked_ < kCheckBytes &&
      update(stream) <= wire::kMostBacklogBytesOfAny) {
    return true;
  }
  uint64_t all = 0;
  for (uint32_t i = 0; i < count; ++i) all += update(i);
  is_large_ = all > wire::kMostBacklogBytes;
  checked_ = sent_in_all_;
  check_bytes_ = is_large_ ? 0 : kCheckBytes;
  return !is_large_ || update(stream) <= wire::kMostBacklogBytesOfAny;
}

}  // namespace gpuloom
