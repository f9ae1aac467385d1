// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/executor_log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "agent/node/one_line.h"
#include "agent/scheduler/log.h"

namespace gpuloom::scheduler {
namespace {

constexpr int kPieceBytes = 4096;
constexpr size_t kLinesOwnBytes = 64;  // for time, level and name, so that empty lines count, too

}  // namespace

ExecutorLog::ExecutorLog(EventLoop* loop, Now now) : now_(std::move(now)) {
  int ends[2];
  // Neither side may ever wait for the other: what does not fit into the pipe is lost.
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  reader_.Reset(ends[0]);
  writer_.Reset(ends[1]);
  watch_ = loop->WatchFd(reader_.get(), EPOLLIN, [this](uint32_t) {
    // One piece at a time, so that no executor keeps others waiting.
    if (!ReadSome() && errno != EAGAIN) watch_.End();
  });
}

void ExecutorLog::Drain() {
  // At most what the largest pipe holds: an intruder may have passed its end to somebody who keeps
  // writing.
  constexpr int kMostPieces = (1 << 20) / kPieceBytes;
  for (int i = 0; i < kMostPieces && ReadSome(); ++i) {
  }
  if (!line_.empty()) EndLine();
  LogDropped();
  watch_.End();
}

bool ExecutorLog::ReadSome() {
  char piece[kPieceBytes];
  const ssize_t bytes = read(reader_.get(), piece, sizeof(piece));
  if (bytes == 0) errno = 0;
  if (bytes <= 0) return false;
  Copy(piece, static_cast<size_t>(bytes));
  return true;
}

void ExecutorLog::Copy(const char* text, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    const char c = text[i];
    if (c == '\n') {
      EndLine();
      continue;
    }
    if (line_.size() >= kMaxLineBytes) EndLine();
    line_ += c;
  }
}

void ExecutorLog::EndLine() {
  const auto now = now_();
  if (now - second_began_ >= std::chrono::seconds(1)) {
    second_began_ = now;
    bytes_this_second_ = 0;
    LogDropped();
  }
  line_ = OneLine(line_, kMaxLineBytes);  // in the form in which it will be written
  bytes_this_second_ += kLinesOwnBytes + line_.size();
  if (bytes_this_second_ > kMaxBytesPerSecond) {
    ++dropped_lines_;
  } else if (const auto line = ParseLogLine(line_); line && line->program == kExecutorProgram) {
    LogOfExecutor(line->level, line->text);
  } else {
    // Not a line of its log: something it wrote because it crashed or could not start.
    LogOfExecutor(LogLevel::kError, line_);
  }
  line_.clear();
}

void ExecutorLog::LogDropped() {
  if (dropped_lines_ == 0) return;
  LogOfExecutor(LogLevel::kWarning,
                std::to_string(dropped_lines_) + " lines were dropped: too many in a second");
  dropped_lines_ = 0;
}

}  // namespace gpuloom::scheduler
