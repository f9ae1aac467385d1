// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/executor_log.h"

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

namespace gpuloom::scheduler {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ExecutorLogTest : public ::testing::Test {
 protected:
  ExecutorLogTest() : log_(&loop_, [this] { return Now(); }), writer_(log_.TakeWriter()) {
    EXPECT_TRUE(log_.valid());
    ::testing::internal::CaptureStderr();
  }

  // Asked for each line that ends.
  EventLoop::Clock::time_point Now() {
    if (refills_) Write("more\nmore\n");
    return now_;
  }
  void Write(const std::string& text) {
    const ssize_t written = write(writer_.get(), text.data(), text.size());
    ASSERT_TRUE(written == static_cast<ssize_t>(text.size()) || (refills_ && errno == EAGAIN));
  }
  // What has come out at the executor's end, without the times.
  std::string Drained() {
    writer_.Reset();
    log_.Drain();
    std::istringstream lines(::testing::internal::GetCapturedStderr());
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      const auto parsed = ParseLogLine(line);
      EXPECT_TRUE(parsed) << line;
      if (!parsed) continue;
      text += LogLevelName(parsed->level);
      text += " ";
      text += parsed->program;
      text += ": ";
      text += parsed->text;
      text += "\n";
    }
    return text;
  }

  EventLoop loop_;
  EventLoop::Clock::time_point now_{std::chrono::hours(1)};
  bool refills_ = false;
  ExecutorLog log_;
  channel::UniqueFd writer_;
};

TEST_F(ExecutorLogTest, LinesComeWholeWithTheirLevel) {
  Write("2026-11-23T04:56:50.123Z info gpuloom-executor: one\n2026-11-23T04:56:50.1");
  loop_.RunOnce(std::chrono::seconds(10));
  Write(
      "24Z debug gpuloom-executor: two\n"
      "2026-11-23T04:56:50.125Z warning gpuloom-executor: last words without an end");
  EXPECT_EQ(Drained(),
            "info gpuloom-executor: one\ndebug gpuloom-executor: two\n"
            "warning gpuloom-executor: last words without an end\n");
}

TEST_F(ExecutorLogTest, WhatIsNoLineOfALogIsAnError) {
  Write("munmap_chunk(): invalid pointer\n");
  EXPECT_EQ(Drained(), "error gpuloom-executor: munmap_chunk(): invalid pointer\n");
}

TEST_F(ExecutorLogTest, Malicious_TheTimeIsTheSchedulers) {
  Write("1999-01-01T00:00:00.000Z info gpuloom-executor: long ago\n");
  log_.Drain();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("Z info gpuloom-executor: long ago\n"), Not(HasSubstr("1999"))));
}

TEST_F(ExecutorLogTest, Malicious_NoLineLooksLikeTheSchedulers) {
  Write(
      "2026-11-23T04:56:50.123Z info gpuloom-scheduler: all is well\n"
      "\x1b[2J\r2026-11-23T04:56:50.123Z info gpuloom-scheduler: hidden\n");
  EXPECT_EQ(Drained(),
            "error gpuloom-executor: 2026-11-23T04:56:50.123Z info gpuloom-scheduler: all is well\n"
            "error gpuloom-executor: \\x1b[2J\\x0d2026-11-23T04:56:50.123Z info gpuloom-scheduler: "
            "hidden\n");
}

TEST_F(ExecutorLogTest, Malicious_LinesWithoutEndAreCut) {
  Write(std::string(3 * ExecutorLog::kMaxLineBytes, 'x') + "\n");
  const std::string text = Drained();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

TEST_F(ExecutorLogTest, Malicious_FloodsAreDroppedAndSaid) {
  const std::string line(1000, 'x');
  size_t written = 0;
  while (written < 2 * ExecutorLog::kMaxBytesPerSecond) {
    const std::string text = line + "\n";
    if (write(writer_.get(), text.data(), text.size()) > 0) {
      written += text.size();
    } else {
      ASSERT_EQ(errno, EAGAIN) << "nobody waits for a scheduler that does not read";
      loop_.RunOnce(std::chrono::milliseconds(1));
    }
  }
  while (write(writer_.get(), "early\n", 6) < 0) loop_.RunOnce(std::chrono::milliseconds(1));
  for (int i = 0; i < 32; ++i) loop_.RunOnce(std::chrono::milliseconds(0));
  now_ += std::chrono::seconds(1);
  Write("late\n");
  const std::string text = Drained();
  EXPECT_THAT(
      text, HasSubstr(" lines were dropped: too many in a second\nerror gpuloom-executor: late\n"));
  EXPECT_THAT(text, Not(HasSubstr("early")));
  EXPECT_LT(text.size(), ExecutorLog::kMaxBytesPerSecond + (ExecutorLog::kMaxBytesPerSecond >> 3));
}

TEST_F(ExecutorLogTest, Malicious_ManyShortLinesAreAFloodToo) {
  const std::string lines(4096, '\n');
  for (size_t written = 0; written < ExecutorLog::kMaxBytesPerSecond / 16;) {
    if (write(writer_.get(), lines.data(), lines.size()) > 0) {
      written += lines.size();
    } else {
      loop_.RunOnce(std::chrono::milliseconds(1));
    }
  }
  const std::string text = Drained();
  EXPECT_LT(text.size(), ExecutorLog::kMaxBytesPerSecond);
  EXPECT_THAT(text, HasSubstr(" lines were dropped: too many in a second\n"));
}

TEST_F(ExecutorLogTest, Malicious_WhoStillWritesWhenTheExecutorIsDeadHoldsNobodyUp) {
  refills_ = true;
  Write("first\n");
  log_.Drain();  // comes back, though there is always more
  refills_ = false;
  EXPECT_THAT(Drained(),
              HasSubstr("error gpuloom-executor: first\nerror gpuloom-executor: more\n"));
}

}  // namespace
}  // namespace gpuloom::scheduler
