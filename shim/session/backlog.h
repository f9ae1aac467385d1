// SPDX-License-Identifier: Apache-2.0
// What has been sent on streams and is not done, about, and whether more may be sent (proto/wire/backlog.h). When all
// streams together have much, only those may send that have little, for they may be what the others wait for. So whoever
// has to make a stream go on always can: another thread of the program, or one of ours.
//
// Owned by Session; its ring's lock is held for every call. A command costs a look and an addition; now and then one
// checks what all streams have done meanwhile.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/wire/backlog.h"
#include "proto/wire/completion_reader.h"
#include "proto/wire/handles.h"

namespace gpuloom {

class Backlog {
 public:
  // Whether there is no need to check. `written_bytes`: to the ring, running free.
  bool MaySend(uint32_t written_bytes) const { return written_bytes - checked_ < check_bytes_; }
  // Whether a command of the stream may be sent now. `newest`: each stream's newest ticket, of `count` streams.
  bool Check(uint32_t stream, uint32_t written_bytes, const wire::CompletionReader& completions,
             const std::atomic<uint64_t>* newest, uint32_t count);
  // After MaySend or Check. `bytes`: of the command, with its payload.
  void Count(uint32_t stream, uint32_t bytes) {
    sent_[stream] += wire::kBacklogBytesOfCommand + bytes;
  }
  // Whether only some may send.
  bool is_large() const { return is_large_; }

 private:
  // So many bytes of records are hardly more than an eighth of the limit, since the shortest has 32.
  static constexpr uint32_t kCheckBytes =
      wire::kMostBacklogBytes / 8 / wire::kBacklogBytesOfCommand * 32;

  // A stream's commands up to `ticket` were `bytes` in all.
  struct Place {
    uint64_t ticket;
    uint64_t bytes;
  };
  struct OfStream {
    Place done;   // known to be done
    Place later;  // not known to be, when it was noted
  };
  // What the stream has sent and not done, or somewhat more. Notes what it has done.
  uint64_t Update(uint32_t stream, const wire::CompletionReader& completions, uint64_t newest);

  uint32_t checked_ = 0;                   // written_bytes at the last check of all streams
  uint32_t check_bytes_ = 0;               // after so many more it is checked again
  bool is_large_ = false;                  // as of then
  uint64_t sent_[wire::kMaxStreams] = {};  // by stream, in bytes, running free
  OfStream of_[wire::kMaxStreams] = {};
};

}  // namespace gpuloom
