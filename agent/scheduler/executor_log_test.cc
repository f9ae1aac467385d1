#include "agent/scheduler/executor_log.h"

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

namespace gpuloom::scheduler {
namespace {

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
  // What has come out at the executor's end.
  std::string Drained() {
    writer_.Reset();
    log_.Drain();
    return ::testing::internal::GetCapturedStderr();
  }

  EventLoop loop_;
  EventLoop::Clock::time_point now_{std::chrono::hours(1)};
  bool refills_ = false;
  ExecutorLog log_;
  channel::UniqueFd writer_;
};

TEST_F(ExecutorLogTest, LinesComeWholeAsTheyWereWritten) {
  Write("gpuloom-executor: one\ngpuloom-exec");
  loop_.RunOnce(std::chrono::seconds(10));
  Write("utor: two\ngpuloom-executor: last words without an end");
  EXPECT_EQ(Drained(),
            "gpuloom-executor: one\ngpuloom-executor: two\n"
            "gpuloom-executor: last words without an end\n");
}

TEST_F(ExecutorLogTest, Malicious_NoLineLooksLikeTheSchedulers) {
  Write("gpuloom-scheduler: all is well\n\x1b[2J\rgpuloom-scheduler: hidden\n");
  EXPECT_EQ(Drained(),
            "gpuloom-executor: gpuloom-scheduler: all is well\n"
            "gpuloom-executor: ?[2J?gpuloom-scheduler: hidden\n");
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
  EXPECT_THAT(text,
              HasSubstr(" lines were dropped: too many in a second\ngpuloom-executor: late\n"));
  EXPECT_THAT(text, Not(HasSubstr("early")));
  EXPECT_LT(text.size(), ExecutorLog::kMaxBytesPerSecond + (ExecutorLog::kMaxBytesPerSecond >> 3));
}

TEST_F(ExecutorLogTest, Malicious_WhoStillWritesWhenTheExecutorIsDeadHoldsNobodyUp) {
  refills_ = true;
  Write("first\n");
  log_.Drain();  // comes back, though there is always more
  refills_ = false;
  EXPECT_THAT(Drained(), HasSubstr("gpuloom-executor: first\ngpuloom-executor: more\n"));
}

}  // namespace
}  // namespace gpuloom::scheduler
