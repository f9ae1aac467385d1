// SPDX-License-Identifier: Apache-2.0
// For tests: conversations over a control socket that another release has had, and a scheduler that
// answers as one did. tests/versions/record.py makes them; tests/golden/README.md says how.
//
// A recording is text, a line for each message: '>' from who asks or '<' from the scheduler, then the
// bytes in hexadecimal, "0*N" for N zeros.
#pragma once

#include <atomic>
#include <cstdint>
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

// Empty where the file does not exist or is none.
Recording ReadRecording(const std::string& path);
std::string RecordingText(const Recording& recording);

// Listens at `state_dir`/control.sock on a thread of its own and answers each message as the recorded
// scheduler answered one of the same type and size, Hello only the same Hello; whoever says anything
// else is hung up on. Serves until it is destroyed, one connection after the other.
class RecordedScheduler {
 public:
  RecordedScheduler(const std::string& state_dir, Recording recording);
  ~RecordedScheduler();

  // Something was said that the recorded scheduler was never asked.
  bool was_surprised() const { return was_surprised_; }

 private:
  void Serve();
  // False: hang up.
  bool AnswerOne(int connection);

  const Recording recording_;
  channel::UniqueFd listener_;
  channel::UniqueFd stop_read_, stop_write_;
  std::atomic<bool> was_surprised_{false};
  std::thread thread_;
};

}  // namespace gpuloom::control
