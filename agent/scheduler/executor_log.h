// SPDX-License-Identifier: Apache-2.0
// What one executor logs: it writes into a pipe, and we copy the lines to our own log. So whoever
// takes over an executor has no descriptor of the log's file, to which it could write without end,
// or which it could cut; no line of it looks like one of ours, and each has our time; and it has so many bytes a
// second. One thread.
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
  // A line as the executor makes them at most; longer ones are cut into several.
  static constexpr size_t kMaxLineBytes = kMaxLogLineBytes;
  // Room for the report of a crash many times over; a log of all details takes a tenth.
  static constexpr size_t kMaxBytesPerSecond = 256 << 10;

  using Now = std::function<EventLoop::Clock::time_point()>;

  // Invalid, with errno, when there is no descriptor left. `loop` outlives it.
  explicit ExecutorLog(EventLoop* loop, Now now = &EventLoop::Clock::now);

  // The executor's end, to be handed over and closed.
  channel::UniqueFd TakeWriter() { return std::move(writer_); }
  bool valid() const { return reader_.valid(); }

  // Copies what is there already: its process has ended.
  void Drain();

 private:
  // False when there is nothing (more).
  bool ReadSome();
  void Copy(const char* text, size_t bytes);
  void EndLine();
  void TellDropped();

  Now now_;
  channel::UniqueFd reader_;
  channel::UniqueFd writer_;
  std::string line_;  // that has no end yet
  EventLoop::Clock::time_point second_began_{};
  size_t bytes_this_second_ = 0;
  size_t dropped_lines_ = 0;
  Watch watch_;
};

}  // namespace gpuloom::scheduler
