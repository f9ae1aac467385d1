// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/command_line.h"

#include <gtest/gtest.h>

#include "agent/scheduler/child_process.h"

namespace gpuloom::scheduler {
namespace {

std::optional<CommandLine> Parse(std::vector<std::string> arguments, int* exit_status) {
  std::vector<char*> argv;
  arguments.insert(arguments.begin(), "gpuloom-scheduler");
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data(), exit_status);
}

TEST(CommandLine, TakesEveryOption) {
  int status = -1;
  const auto line =
      Parse({"--gpu", "1", "--state-dir", "/s", "--cuda-library", "/l", "--executor", "/e",
             "--idle-timeout", "2m", "--drain-timeout", "250ms", "--executor-memory", "8GiB",
             "--exit-when-unused", "--executor-users", "7-9"},
            &status);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->gpu, "1");
  EXPECT_EQ(line->options.state_dir, "/s");
  EXPECT_EQ(line->options.cuda_library, "/l");
  EXPECT_EQ(line->options.executor_path, "/e");
  EXPECT_EQ(line->options.idle_timeout, std::chrono::minutes(2));
  EXPECT_EQ(line->options.drain_timeout, std::chrono::milliseconds(250));
  EXPECT_EQ(line->options.executor_memory_bytes, uint64_t{8} << 30);
  EXPECT_TRUE(line->options.exit_when_unused);
  EXPECT_EQ(line->executor_users, "7-9");
}

TEST(CommandLine, MistakesEndWithStatusTwo) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {},
           {"--gpu", "0"},
           {"--bogus"},
           {"--gpu", "0", "--state-dir", "/s", "--idle-timeout", "5"},
           {"--gpu", "0", "--state-dir", "/s", "--executor-memory", "much"},
           {"--gpu", "0", "--state-dir", "/s", "--executor-memory", "8G"},
           {"--gpu", "0", "--state-dir", "/s", "--executor-memory", "1MiB"},
           {"--gpu", "0", "--state-dir", "/s", "--executor-memory", "0"},
           {"--gpu", "0", "--state-dir", "/s", "--log-level", "loud"},
           {"--gpu", "0", "--state-dir", "/s", "--log-format", "xml"}}) {
    int status = -1;
    EXPECT_FALSE(Parse(arguments, &status));
    EXPECT_EQ(status, 2);
  }
}

TEST(CommandLine, AMistakeNamesTheProgram) {
  int status = -1;
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(Parse({"--bogus"}, &status));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "gpuloom-scheduler: '--bogus' is not expected\nSee gpuloom-scheduler --help\n");
}

TEST(Environment, KeepsWhatADriverNeedsAndNothingElse) {
  const char* given[] = {"PATH=/bin",
                         "LD_PRELOAD=/evil.so",
                         "CUDA_VISIBLE_DEVICES=1",
                         "NVIDIA_DRIVER_CAPABILITIES=all",
                         "GPULOOM_SOFTGPU_MEMORY=1GiB",
                         "AWS_SECRET_ACCESS_KEY=x",
                         "PATHOLOGY=1",
                         "CUDA_",
                         nullptr};
  EXPECT_EQ(CleanEnvironment(const_cast<char* const*>(given)),
            (std::vector<std::string>{"PATH=/bin", "CUDA_VISIBLE_DEVICES=1",
                                      "NVIDIA_DRIVER_CAPABILITIES=all",
                                      "GPULOOM_SOFTGPU_MEMORY=1GiB", "CUDA_"}));
}

}  // namespace
}  // namespace gpuloom::scheduler
