// SPDX-License-Identifier: Apache-2.0
// Approximate bytes of incomplete commands, by stream; limits how far a thread may run ahead of the device
// (proto/wire/backlog.h). Once all streams together exceed the limit, only streams with little queued may send, because
// the others may be waiting for their work: a thread that has to unblock a stream, of the program or of the shim, is never
// blocked itself.
//
// Owned by Session; its ring's lock is held for every call. Costs one comparison and one addition for each command;
// completions of all streams are read again every kCheckBytes.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/wire/backlog.h"
#include "proto/wire/completion_reader.h"
#include "proto/wire/handles.h"

namespace gpuloom {

class Backlog {
 public:
  // Whether a command may be sent without Check.
  bool MaySend() const { return sent_in_all_ - checked_ < check_bytes_; }
  // Whether a command of the stream may be sent now. `newest`: each stream's newest ticket, of `count` streams.
  bool Check(uint32_t stream, const wire::CompletionReader& completions,
             const std::atomic<uint64_t>* newest, uint32_t count);
  // After MaySend or Check. `bytes`: of the command, with its payload and what it holds in the executor.
  void Count(uint32_t stream, uint32_t bytes) {
    sent_[stream] += wire::kBacklogBytesOfCommand + bytes;
    sent_in_all_ += wire::kBacklogBytesOfCommand + bytes;
  }
  // Whether only streams with little queued may send.
  bool is_large() const { return is_large_; }

 private:
  // How much is sent between two checks.
  static constexpr uint32_t kCheckBytes = wire::kMostBacklogBytes / 8;

  // A stream's commands up to `ticket` were `bytes` in all.
  struct Sample {
    uint64_t ticket;
    uint64_t bytes;
  };
  struct OfStream {
    Sample done;   // the latest that is known to be complete
    Sample later;  // was incomplete when it was taken
  };
  // Reads the stream's completions. Returns the bytes of its incomplete commands, or somewhat more.
  uint64_t Update(uint32_t stream, const wire::CompletionReader& completions, uint64_t newest);

  uint64_t sent_in_all_ = 0;               // in all streams, in bytes
  uint64_t checked_ = 0;                   // sent_in_all_ at the last check of all streams
  uint32_t check_bytes_ = 0;               // how many more until the next check
  bool is_large_ = false;                  // as of the last check
  uint64_t sent_[wire::kMaxStreams] = {};  // by stream, in bytes, running free
  OfStream of_[wire::kMaxStreams] = {};
};

}  // namespace gpuloom
