// SPDX-License-Identifier: Apache-2.0
// What one executor logs: it writes into a pipe, and we copy the lines to our own log. So whoever takes over an
// executor has no descriptor of the log file to fill or truncate; its lines cannot pass for ours, and each has our
// time; and its bytes per second are limited. Owned by Executor; the scheduler's thread only. Lines beyond the limit
// are dropped, and their number is logged.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "agent/node/log_line.h"
#include "agent/scheduler/event_loop.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {

class ExecutorLog {
 public:
  // The longest line that an executor writes; a longer one is split.
  static constexpr size_t kMaxLineBytes = kMaxLogLineBytes;
  // Room for many crash reports; a debug log takes a tenth.
  static constexpr size_t kMaxBytesPerSecond = 256 << 10;

  using Now = std::function<EventLoop::Clock::time_point()>;

  // Invalid, with errno, if no descriptor is left. `loop` outlives it.
  explicit ExecutorLog(EventLoop* loop, Now now = &EventLoop::Clock::now);

  // The executor's end: pass it on, then close it.
  channel::UniqueFd TakeWriter() { return std::move(writer_); }
  bool valid() const { return reader_.valid(); }

  // Copies what is still in the pipe. Call when the executor's process has ended.
  void Drain();

 private:
  // Returns false when the pipe is empty.
  bool ReadSome();
  void Copy(const char* text, size_t bytes);
  void EndLine();
  void LogDropped();

  Now now_;
  channel::UniqueFd reader_;
  channel::UniqueFd writer_;
  std::string line_;  // not ended yet
  EventLoop::Clock::time_point second_began_{};
  size_t bytes_this_second_ = 0;
  size_t dropped_lines_ = 0;
  Watch watch_;
};

}  // namespace gpuloom::scheduler
