// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/event_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <string>

namespace gpuloom::scheduler {
namespace {

using ::testing::ContainsRegex;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

// What is logged while the loop runs once.
std::string LoggedBy(EventLoop* loop) {
  CaptureStderr();
  loop->RunOnce(std::chrono::hours(1));
  return GetCapturedStderr();
}

TEST(EventLoop, ATimersSlowStepIsNamedByItsPlace) {
  EventLoop loop(std::chrono::nanoseconds(1));
  const Timer timer = loop.After({}, [] {});
  EXPECT_THAT(LoggedBy(&loop), ContainsRegex("a step took [0-9.]+ s.*event_loop_test.cc:[0-9]+;"));
}

TEST(EventLoop, AWatchsSlowStepIsNamedByItsPlace) {
  EventLoop loop(std::chrono::nanoseconds(1));
  const channel::UniqueFd ready(eventfd(1, EFD_CLOEXEC));
  const Watch watch = loop.WatchFd(ready.get(), EPOLLIN, [](uint32_t) {});
  EXPECT_THAT(LoggedBy(&loop), ContainsRegex("a step took [0-9.]+ s.*event_loop_test.cc:[0-9]+;"));
}

TEST(EventLoop, ALateAwakeningIsLogged) {
  EventLoop loop(std::chrono::nanoseconds(1));
  const Timer timer = loop.After({}, [] {});
  EXPECT_THAT(LoggedBy(&loop), ContainsRegex("woke [0-9.]+ s late"));
}

TEST(EventLoop, OrdinaryStepsAreNotLogged) {
  EventLoop loop(std::chrono::hours(1));
  const Timer timer = loop.After({}, [] {});
  const channel::UniqueFd ready(eventfd(1, EFD_CLOEXEC));
  const Watch watch = loop.WatchFd(ready.get(), EPOLLIN, [](uint32_t) {});
  EXPECT_EQ(LoggedBy(&loop), "");
}

}  // namespace
}  // namespace gpuloom::scheduler
