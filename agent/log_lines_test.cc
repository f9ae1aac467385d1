// SPDX-License-Identifier: Apache-2.0
#include "agent/log_lines.h"

#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/node/log.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class LogLinesTest : public ::testing::Test {
 protected:
  LogLinesTest() { LogThroughNode(); }
  ~LogLinesTest() override { spdlog::set_default_logger(before_); }

  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

TEST_F(LogLinesTest, EveryLevelHasItsName) {
  ::testing::internal::CaptureStderr();
  spdlog::debug("not written");
  spdlog::info("one of {}", 4);
  spdlog::warn("two");
  spdlog::error("three");
  spdlog::critical("four");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              MatchesRegex("[^ ]+Z info gpuloom-agent: one of 4\n"
                           "[^ ]+Z warning gpuloom-agent: two\n"
                           "[^ ]+Z error gpuloom-agent: three\n"
                           "[^ ]+Z error gpuloom-agent: four\n"));
}

TEST_F(LogLinesTest, ItsLevelIsTheProcesss) {
  ::testing::internal::CaptureStderr();
  SetLogLevel(LogLevel::kError);
  spdlog::warn("not written");
  SetLogLevel(LogLevel::kDebug);
  spdlog::debug("written");
  SetLogLevel(LogLevel::kInfo);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              MatchesRegex("[^ ]+Z debug gpuloom-agent: written\n"));
}

TEST_F(LogLinesTest, WhatGrpcSaysIsALineOfABudget) {
  ::testing::internal::CaptureStderr();
  gpr_log_verbosity_init();  // as gRPC does when it begins
  for (int i = 0; i < 1000; ++i)
    gpr_log("/src/core/server.cc", 7, GPR_LOG_SEVERITY_ERROR, "no %d", i);
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text.substr(0, text.find('\n')),
              MatchesRegex("[^ ]+Z error gpuloom-agent: gRPC: server.cc:7: no 0"));
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 100);
}

TEST_F(LogLinesTest, Malicious_NobodysTextBeginsALine) {
  ::testing::internal::CaptureStderr();
  spdlog::warn("allocate refused: {}", "x\n2026-01-01T00:00:00.000Z info faked\r\x1b[2J");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("allocate refused: x\\n2026-01-01T00:00:00.000Z info faked\\x0d\\x1b[2J"),
            EndsWith("\n")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

}  // namespace
}  // namespace gpuloom
