// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/command_line.h"

#include <getopt.h>
#include <gtest/gtest.h>

#include <vector>

namespace gpuloom::executor {
namespace {

std::optional<CommandLine> Parse(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  arguments.insert(arguments.begin(), "gpuloom-executor");
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  optind = 0;  // anew: a process parses its own command line only once
  return ParseCommandLine(static_cast<int>(argv.size()) - 1, argv.data());
}

TEST(CommandLine, TakesEveryOption) {
  const auto line = Parse({"--gpu", "GPU-1", "--cuda-library", "/l", "--domain", "namespace/a",
                           "--log-level", "debug", "--memory-limit", "8GiB"});
  ASSERT_TRUE(line);
  EXPECT_EQ(line->memory_limit_bytes, uint64_t{8} << 30);
  EXPECT_EQ(line->gpu, "GPU-1");
  EXPECT_EQ(line->cuda_library, "/l");
  EXPECT_EQ(line->domain, "namespace/a");
  EXPECT_EQ(line->log_level, LogLevel::kDebug);
}

TEST(CommandLine, SaysHowItIsConfined) {
  const auto line = Parse({"--gpu", "GPU-1", "--cuda-library", "/l", "--user", "2000000001",
                           "--folder", "/f", "--tell-refused-calls"});
  ASSERT_TRUE(line);
  EXPECT_EQ(line->user, 2'000'000'001u);
  EXPECT_EQ(line->folder, "/f");
  EXPECT_TRUE(line->tells_refused_calls);
  EXPECT_FALSE(line->lenient);
  EXPECT_EQ(line->folder_to_remove, "");
}

TEST(CommandLine, RemovesAFolderInsteadOfServing) {
  const auto line = Parse({"--remove", "/f", "--user", "7"});
  ASSERT_TRUE(line);
  EXPECT_EQ(line->folder_to_remove, "/f");
  EXPECT_EQ(line->user, 7u);
}

TEST(CommandLine, ShowsItsVersionInsteadOfServing) {
  const auto line = Parse({"--version"});
  ASSERT_TRUE(line);
  EXPECT_TRUE(line->shows_version);
  EXPECT_FALSE(Parse({"--remove", "/f"})->shows_version);
  EXPECT_EQ(Parse({"--version", "--cuda-library", "/l"})->cuda_library, "/l");
}

TEST(CommandLine, LogsWhatHappensUnlessToldOtherwise) {
  const auto line = Parse({"--gpu", "GPU-1", "--cuda-library", "/l"});
  ASSERT_TRUE(line);
  EXPECT_EQ(line->domain, "");
  EXPECT_EQ(line->log_level, LogLevel::kInfo);
}

TEST(CommandLine, MistakesAreRefusedWithTheUsage) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {},
           {"--gpu", "GPU-1"},
           {"--cuda-library", "/l"},
           {"--gpu", "", "--cuda-library", "/l"},
           {"--gpu", "GPU-1", "--cuda-library"},
           {"--gpu", "GPU-1", "--cuda-library", "/l", "stray"},
           {"--gpu", "GPU-1", "--cuda-library", "/l", "--bogus"},
           {"--gpu", "GPU-1", "--cuda-library", "/l", "--memory-limit", "8GB"},
           {"--gpu", "GPU-1", "--cuda-library", "/l", "--memory-limit", "0"},
           {"--gpu", "GPU-1", "--cuda-library", "/l", "--log-level", "loud"},
           {"--gpu", "GPU-1", "--cuda-library", "/l", "--user", "0"},
           {"--gpu", "GPU-1", "--cuda-library", "/l", "--user", "4294967295"},
           {"--gpu", "GPU-1", "--cuda-library", "/l", "--user", "root"},
           {"--remove", "/f", "--user", ""}}) {
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(Parse(arguments)) << ::testing::PrintToString(arguments);
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("usage: gpuloom-executor --gpu"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace gpuloom::executor
