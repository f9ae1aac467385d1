// SPDX-License-Identifier: Apache-2.0
#include "agent/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace gpuloom {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

std::optional<CommandLine> Parse(std::vector<std::string> arguments, int* exit_status) {
  std::vector<char*> argv;
  arguments.insert(arguments.begin(), "gpuloom-agent");
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data(), exit_status);
}

TEST(CommandLine, DefaultsAreANodes) {
  int status = -1;
  const auto line = Parse({}, &status);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->state_directory, "/var/lib/gpuloom");
  EXPECT_EQ(line->kubelet_directory, "/var/lib/kubelet/device-plugins");
  EXPECT_EQ(line->resource_name, "gpuloom.io/gpu");
  EXPECT_EQ(line->slots, 10);
  EXPECT_EQ(line->schedulers, "start");
  EXPECT_FALSE(line->probe.has_value());
  EXPECT_FALSE(line->metrics_address.has_value());
  // Beside the program that runs: here the test, in tests/.
  EXPECT_THAT(line->scheduler, EndsWith("/tests/gpuloom-scheduler"));
  EXPECT_THAT(line->shim, EndsWith("/lib/libgpuloom.so"));
  EXPECT_THAT(line->nvml, EndsWith("/lib/libgpuloom-nvml.so"));
  EXPECT_THAT(line->trace, EndsWith("/lib/gpuloom-trace"));
}

TEST(CommandLine, TakesEveryOption) {
  int status = -1;
  const auto line = Parse({"--state-dir",
                           "/s",
                           "--kubelet-dir",
                           "/k",
                           "--pod-resources-socket",
                           "/p",
                           "--resource-name",
                           "x.io/gpu",
                           "--policy",
                           "/policy.yaml",
                           "--slots",
                           "100",
                           "--reserve",
                           "2GiB",
                           "--pinned-limit",
                           "1GiB",
                           "--shim",
                           "/shim.so",
                           "--nvml",
                           "/nvml.so",
                           "--scheduler",
                           "/scheduler",
                           "--softgpu",
                           "/softgpu.so",
                           "--health-nvml",
                           "/health.so",
                           "--schedulers",
                           "adopt",
                           "--idle-timeout",
                           "5s",
                           "--drain-timeout",
                           "6s",
                           "--executor-users",
                           "7-9",
                           "--executor-memory",
                           "8GiB",
                           "--nvidia-runtime-config",
                           "/r.toml",
                           "--metrics-address",
                           ":9464",
                           "--metrics-hosts",
                           "gpus.example.com,*.svc.example.org",
                           "--grace-seconds",
                           "0",
                           "--missing-seconds",
                           "7",
                           "--log-level",
                           "warning",
                           "--log-format",
                           "json",
                           "--probe"},
                          &status);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->state_directory, "/s");
  EXPECT_EQ(line->kubelet_directory, "/k");
  EXPECT_EQ(line->pod_resources, "/p");
  EXPECT_EQ(line->resource_name, "x.io/gpu");
  EXPECT_EQ(line->policy, "/policy.yaml");
  EXPECT_EQ(line->slots, 100);
  EXPECT_EQ(line->reserve, "2GiB");
  EXPECT_EQ(line->pinned_limit, "1GiB");
  EXPECT_EQ(line->shim, "/shim.so");
  EXPECT_EQ(line->nvml, "/nvml.so");
  EXPECT_EQ(line->scheduler, "/scheduler");
  EXPECT_EQ(line->softgpu, "/softgpu.so");
  EXPECT_EQ(line->health_nvml, "/health.so");
  EXPECT_EQ(line->schedulers, "adopt");
  EXPECT_EQ(line->idle_timeout, "5s");
  EXPECT_EQ(line->drain_timeout, "6s");
  EXPECT_EQ(line->executor_users, "7-9");
  EXPECT_EQ(line->executor_memory, "8GiB");
  EXPECT_EQ(line->runtime_config, "/r.toml");
  EXPECT_EQ(line->metrics_address->text, ":9464");
  EXPECT_EQ(line->metrics_hosts,
            (std::vector<std::string>{"gpus.example.com", "*.svc.example.org"}));
  EXPECT_EQ(line->grace_seconds, 0);
  EXPECT_EQ(line->missing_seconds, 7);
  EXPECT_EQ(line->log_level, "warning");
  EXPECT_EQ(line->log_format, "json");
  EXPECT_TRUE(line->probe);
}

TEST(CommandLine, WhereNothingCanBeServedIsSaid) {
  for (const auto& [arguments, why] : std::map<std::vector<std::string>, std::string>{
           {{"--metrics-address", "node-1:9464"}, "'node-1' is no IP address"},
           {{"--metrics-address", ":9464", "--schedulers", "only"}, "--schedulers only"}}) {
    int status = 0;
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(Parse(arguments, &status));
    EXPECT_NE(status, 0);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                ::testing::AllOf(HasSubstr("--metrics-address"), HasSubstr(why)));
  }
}

TEST(CommandLine, ShapesAreThoseThatAGpuHasSlotsFor) {
  int status = 0;
  EXPECT_EQ(Parse({"--slot-shapes", "4,2", "--slots", "4"}, &status)->shapes,
            (std::vector<int>{2, 4}));
  for (const auto& [shapes, why] : std::map<std::string, std::string>{{"0", "0 is no shape"},
                                                                      {"2,2", "2 comes twice"},
                                                                      {"5", "each has 4"},
                                                                      {"2.0", "'2.0'"}}) {
    ::testing::internal::CaptureStderr();
    EXPECT_FALSE(Parse({"--slot-shapes", shapes, "--slots", "4"}, &status));
    EXPECT_NE(status, 0);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                ::testing::AllOf(HasSubstr("--slot-shapes"), HasSubstr(why)));
  }
}

TEST(CommandLine, AwaitingPodsHasATime) {
  int status = 0;
  const auto line = Parse({"--await-pods", "gpuloom-drain", "--await-timeout", "90s"}, &status);
  ASSERT_TRUE(line);
  EXPECT_EQ(line->await_pods, "gpuloom-drain");
  EXPECT_EQ(line->await_timeout, std::chrono::seconds(90));
  EXPECT_EQ(Parse({"--await-pods", "a"}, &status)->await_timeout, std::chrono::minutes(4));
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(Parse({"--await-pods", "a", "--await-timeout", "90"}, &status));
  EXPECT_FALSE(Parse({"--await-timeout", "90s"}, &status)) << "of what?";
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("\"90\" is no time"));
}

TEST(CommandLine, MistakesEndWithStatusTwo) {
  int status = -1;
  EXPECT_FALSE(Parse({"--help"}, &status));
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(Parse({"--version"}, &status));
  EXPECT_EQ(status, 0);
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"--bogus"},
                                             {"stray"},
                                             {"--slots", "0"},
                                             {"--slots", "101"},
                                             {"--slots", "many"},
                                             {"--schedulers", "stop"},
                                             {"--grace-seconds", "-1"},
                                             {"--missing-seconds", "-1"},
                                             {"--metrics-address", ":0x1"},
                                             {"--metrics-hosts", "a"},
                                             {"--metrics-address", ":0", "--metrics-hosts", "a:80"},
                                             {"--metrics-address", ""},
                                             {"--policy"}}) {
    status = 0;
    EXPECT_FALSE(Parse(arguments, &status)) << ::testing::PrintToString(arguments);
    EXPECT_EQ(status, 2) << ::testing::PrintToString(arguments);
  }
}

TEST(CommandLine, AMistakeNamesTheProgram) {
  int status = -1;
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(Parse({"--slots", "0"}, &status));
  EXPECT_FALSE(Parse({"--bogus"}, &status));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "gpuloom-agent: --slots: Value 0 not in range 1 to 100\nSee gpuloom-agent --help\n"
            "gpuloom-agent: '--bogus' is not expected\nSee gpuloom-agent --help\n");
}

}  // namespace
}  // namespace gpuloom
