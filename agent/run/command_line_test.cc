// SPDX-License-Identifier: Apache-2.0
#include "agent/run/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace gpuloom::run {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

std::optional<CommandLine> Parse(std::vector<std::string> arguments, int* exit_status) {
  std::vector<char*> argv;
  arguments.insert(arguments.begin(), "gpuloom");
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data(), exit_status);
}

TEST(CommandLine, TakesTheCommandAsItIs) {
  int status = -1;
  const auto line = Parse({"run", "--softgpu", "--slots", "3", "--memory", "8GiB", "--domain", "d",
                           "--", "python3", "-c", "print()", "--gpu", "x"},
                          &status);
  ASSERT_TRUE(line);
  EXPECT_TRUE(line->softgpu);
  EXPECT_EQ(line->slots, 3);
  EXPECT_EQ(line->memory_bytes, 8 * kGiB);
  EXPECT_EQ(line->domain, "d");
  EXPECT_THAT(line->command, ::testing::ElementsAre("python3", "-c", "print()", "--gpu", "x"));
}

TEST(CommandLine, AMistakeNamesTheCommandAndItsHelp) {
  const std::pair<std::vector<std::string>, std::string> kMistakes[] = {
      {{"status"}, "gpuloom: there is no command 'status'; there are run, policy, suspend, "},
      {{"policy"}, "gpuloom policy: say what: check, "},
      {{"policy", "look"}, "gpuloom policy: there is no command 'look'; there are check, "},
      {{"tenants", "a"}, "gpuloom tenants: 'a' is not expected\nSee gpuloom tenants --help\n"},
      {{"run", "--all", "--", "true"}, "gpuloom run: '--all' is not expected\n"},
      {{"top", "--all"}, "gpuloom top: '--all' is not expected\nSee gpuloom top --help\n"},
      {{"--all"}, "gpuloom: '--all' is not expected\nSee gpuloom --help\n"},
      {{"trace", "-o", "f"}, "gpuloom trace: --seconds is required\nSee gpuloom trace --help\n"},
      {{"trace", "--seconds", "500", "-o", "f"},
       "gpuloom trace: --seconds: 500: write seconds from 0.001 to 240\nSee gpuloom trace "
       "--help\n"},
      {{"policy", "check"},
       "gpuloom policy check: file is required\nSee gpuloom policy check --help"},
      {{"gpus", "-o", "xml"}, "gpuloom gpus: --output: xml not in {table,json,yaml}\nSee "}};
  for (const auto& [arguments, message] : kMistakes) {
    int status = -1;
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(Parse(arguments, &status));
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, ::testing::StartsWith(message));
    EXPECT_THAT(said, ::testing::Not(::testing::HasSubstr("man-pages")));
    EXPECT_EQ(status, 2);
  }
}

TEST(CommandLine, ASecondDashDashIsTheCommands) {
  int status = -1;
  const auto line = Parse({"run", "--", "env", "--", "true"}, &status);
  ASSERT_TRUE(line);
  EXPECT_THAT(line->command, ::testing::ElementsAre("env", "--", "true"));
}

TEST(CommandLine, NoDashDashIsNeededForACommandWithoutOptions) {
  int status = -1;
  const auto line = Parse({"run", "--gpu", "1", "nvidia-smi"}, &status);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->gpu, "1");
  EXPECT_THAT(line->command, ::testing::ElementsAre("nvidia-smi"));
}

TEST(CommandLine, ADecimalSizeIsRefusedWithTheBinaryOne) {
  for (const char* size : {"8G", "8GB"}) {
    int status = -1;
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(Parse({"run", "--memory", size, "--", "true"}, &status));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                ::testing::HasSubstr("--memory: size '" + std::string(size) +
                                     "': write the binary unit, 8GiB"));
    EXPECT_EQ(status, 2);
  }
}

TEST(CommandLine, SharesAndWaitsAsInAPolicy) {
  int status = -1;
  auto line = Parse({"run", "--weight", "300", "--priority", "low", "--time-share-max", "25%",
                     "--memory-wait", "5m", "--", "true"},
                    &status);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->weight, 300u);
  EXPECT_EQ(line->priority, 3u);
  EXPECT_EQ(line->time_percent, 25u);
  EXPECT_EQ(line->memory_wait, std::chrono::minutes(5));
  line = Parse({"run", "--", "true"}, &status);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->weight, 0u);
  EXPECT_EQ(line->priority, 0u);
  EXPECT_EQ(line->time_percent, 0u);
  EXPECT_EQ(line->sm_percent, 0u);
  EXPECT_EQ(line->sm_reserved, 0u);
  EXPECT_EQ(line->memory_wait.count(), 0);
}

TEST(CommandLine, SuspendAndResumeTakeAPod) {
  int status = -1;
  auto line =
      Parse({"suspend", "team-a/train-7/main", "--state-dir", "/s", "--timeout", "2m"}, &status);
  ASSERT_TRUE(line && line->suspend);
  EXPECT_TRUE(line->suspend->suspend);
  EXPECT_EQ(line->suspend->pod_namespace, "team-a");
  EXPECT_EQ(line->suspend->pod, "train-7");
  EXPECT_EQ(line->suspend->container, "main");
  EXPECT_EQ(line->suspend->state_dir, "/s");
  EXPECT_EQ(line->suspend->timeout, std::chrono::minutes(2));
  EXPECT_EQ(line->suspend->format, Format::kTable);
  line = Parse({"resume", "team-a/train-7", "-o", "json"}, &status);
  ASSERT_TRUE(line && line->suspend);
  EXPECT_EQ(line->suspend->format, Format::kJson);
  EXPECT_FALSE(line->suspend->suspend);
  EXPECT_EQ(line->suspend->timeout, SuspendCommand::kDefaultTimeout);
}

TEST(CommandLine, TopTakesHowOftenAndInWhichOrder) {
  int status = -1;
  auto line = Parse({"top"}, &status);
  ASSERT_TRUE(line && line->top);
  EXPECT_EQ(line->top->interval, std::chrono::seconds(2));
  EXPECT_EQ(line->top->times, 0);
  EXPECT_EQ(line->top->order, TopOrder::kTime);
  EXPECT_EQ(line->top->format, Format::kTable);
  line = Parse(
      {"top", "--interval", "5s", "-n", "3", "--sort", "wait", "-o", "yaml", "--state-dir", "/s"},
      &status);
  ASSERT_TRUE(line && line->top);
  EXPECT_EQ(line->top->interval, std::chrono::seconds(5));
  EXPECT_EQ(line->top->times, 3);
  EXPECT_EQ(line->top->order, TopOrder::kWait);
  EXPECT_EQ(line->top->format, Format::kYaml);
  EXPECT_EQ(line->top->state_dir, "/s");
  line = Parse({"top", "--once"}, &status);
  ASSERT_TRUE(line && line->top);
  EXPECT_EQ(line->top->times, 1);
}

TEST(CommandLine, Drain) {
  int status = -1;
  auto line = Parse({"drain"}, &status);
  ASSERT_TRUE(line && line->drain);
  EXPECT_EQ(line->drain->gpu, "");
  EXPECT_FALSE(line->drain->undo || line->drain->wait || line->drain->timeout);
  line = Parse({"drain", "GPU-1a2b3c4d", "--reason", "new fans", "--wait", "--timeout", "120m",
                "--state-dir", "/s", "-o", "json"},
               &status);
  ASSERT_TRUE(line && line->drain);
  EXPECT_EQ(line->drain->gpu, "GPU-1a2b3c4d");
  EXPECT_EQ(line->drain->reason, "new fans");
  EXPECT_TRUE(line->drain->wait);
  EXPECT_EQ(line->drain->timeout, std::chrono::hours(2));
  EXPECT_EQ(line->drain->format, Format::kJson);
  EXPECT_TRUE(Parse({"drain", "--undo"}, &status)->drain->undo);
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"drain", "--undo", "--wait"},
                                             {"drain", "--timeout", "2m"},
                                             {"drain", "--wait", "--timeout", "2"},
                                             {"drain", "--undo", "--reason", "x"}}) {
    EXPECT_FALSE(Parse(wrong, &status));
    EXPECT_EQ(status, 2);
  }
}

TEST(CommandLine, TheDoctorTakesWhereToLook) {
  int status = -1;
  auto line = Parse({"doctor"}, &status);
  ASSERT_TRUE(line && line->doctor);
  EXPECT_EQ(line->doctor->root, "");
  EXPECT_EQ(line->doctor->kubelet_dir, "/var/lib/kubelet");
  setenv("GPULOOM_KUBELET_DIR", "/srv/kubelet", 1);
  line = Parse({"doctor"}, &status);
  EXPECT_EQ(line->doctor->kubelet_dir, "/srv/kubelet");
  line = Parse({"doctor", "--root", "/host", "--policy", "p", "--kubelet-dir", "/k", "-o", "json"},
               &status);
  ASSERT_TRUE(line && line->doctor);
  EXPECT_EQ(line->doctor->root, "/host");
  EXPECT_EQ(line->doctor->policy_file, "p");
  EXPECT_EQ(line->doctor->kubelet_dir, "/k");  // the option counts before the variable
  unsetenv("GPULOOM_KUBELET_DIR");
  EXPECT_EQ(line->doctor->format, Format::kJson);
}

TEST(CommandLine, MistakesEndWithStatusTwo) {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"walk"},
                                             {"run"},
                                             {"run", "--"},
                                             {"run", "--bogus", "--", "true"},
                                             {"run", "--slots", "0", "--", "true"},
                                             {"run", "--slots", "11", "--", "true"},
                                             {"run", "--softgpu", "--gpu", "1", "--", "true"},
                                             {"run", "--memory", "8GB", "--", "true"},
                                             {"run", "--memory", "1K", "--", "true"},
                                             {"run", "--weight", "0", "--", "true"},
                                             {"run", "--weight", "1001", "--", "true"},
                                             {"run", "--priority", "4", "--", "true"},
                                             {"run", "--priority", "highest", "--", "true"},
                                             {"run", "--time-share-max", "25", "--", "true"},
                                             {"run", "--time-share-max", "0%", "--", "true"},
                                             {"run", "--time-share-max", "101%", "--", "true"},
                                             {"run", "--time-share-max", "2.5%", "--", "true"},
                                             {"run", "--sm-percent", "101%", "--", "true"},
                                             {"run", "--sm-reserved", "8", "--", "true"},
                                             {"run", "--memory-wait", "30", "--", "true"},
                                             {"run", "--memory-wait", "61m", "--", "true"},
                                             {"suspend"},
                                             {"suspend", "train-7"},
                                             {"suspend", "a/b/c/d"},
                                             {"suspend", "a/b", "--timeout", "10"},
                                             {"resume", "a/b", "--timeout", "10s"},
                                             {"top", "--interval", "100ms"},
                                             {"top", "--interval", "2"},
                                             {"top", "-n", "0"},
                                             {"top", "-n", "2", "--once"},
                                             {"top", "--sort", "size"},
                                             {"tenants", "-o", "xml"},
                                             {"run", "--domain", "", "--", "true"}}) {
    int status = -1;
    EXPECT_FALSE(Parse(arguments, &status)) << ::testing::PrintToString(arguments);
    EXPECT_EQ(status, 2) << ::testing::PrintToString(arguments);
  }
}

}  // namespace
}  // namespace gpuloom::run
