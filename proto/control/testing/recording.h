// SPDX-License-Identifier: Apache-2.0
// For tests: recorded conversations of another release over a control socket, and a scheduler that answers as that one
// did. tests/versions/record.py makes them; tests/golden/README.md says how.
//
// A recording is text, one line per message: '>' from the requester or '<' from the scheduler, then the bytes in
// hexadecimal, "0*N" for N zeros.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "proto/channel/unique_fd.h"
#include "proto/control/connection.h"

namespace gpuloom::control {

struct RecordedMessage {
  bool from_scheduler = false;
  std::vector<uint8_t> bytes;

  MessageHeader header() const;
};
using Recording = std::vector<RecordedMessage>;

// One that was never recorded, as today's release would say it.
template <Message M>
RecordedMessage MakeRecorded(bool from_scheduler, const M& message) {
  const Encoded<M> encoded(1, message, kControlMinor);
  return {from_scheduler, {encoded.bytes, encoded.bytes + encoded.size_bytes}};
}

// Empty if the file does not exist or is not a recording.
Recording ReadRecording(const std::string& path);
std::string RecordingText(const Recording& recording);

// Listens at `state_dir`/control.sock on its own thread, calls `on_message`, if any, with each message's type, and answers each message as the recorded scheduler answered
// one of the same type and size (since 3.1 also a shorter one's: what it does not know is ignored), a Hello as the
// same Hello or else as the first; a client that sends anything else is disconnected. Serves until it is destroyed,
// one connection after the other.
class RecordedScheduler {
 public:
  RecordedScheduler(const std::string& state_dir, Recording recording,
                    std::function<void(uint32_t type)> on_message = nullptr);
  ~RecordedScheduler();

  // Returns true if something was sent that the recorded scheduler was never asked.
  bool was_surprised() const { return was_surprised_; }

 private:
  void Serve();
  // Returns false to disconnect.
  bool AnswerOne(int connection);

  const Recording recording_;
  const std::function<void(uint32_t)> on_message_;
  bool has_minors_ = false;  // the recorded scheduler: it is not of 3.0
  channel::UniqueFd listener_;
  channel::UniqueFd stop_read_, stop_write_;
  std::atomic<bool> was_surprised_{false};
  std::thread thread_;
};

}  // namespace gpuloom::control
