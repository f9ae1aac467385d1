// SPDX-License-Identifier: Apache-2.0
#include "agent/node_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "agent/identity/allocation_book.h"
#include "agent/inventory/slots.h"
#include "agent/metrics/testing/http.h"
#include "agent/node/gpu_standing.h"
#include "agent/plugin/plugin_socket.h"
#include "agent/plugin/probe.h"
#include "agent/testing/clock.h"
#include "proto/channel/socket.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const char kUuid[] = "GPU-aaaaaaaa-0000-0000-0000-000000000001";
constexpr uint64_t kGiB = uint64_t{1} << 30;
// All that is missing, as no kubelet runs here.
const char kNotRegistered[] = "not registered with the kubelet yet";

TEST(SupervisorOptions, AreWhatTheCommandLineAsksFor) {
  CommandLine line;
  line.state_directory = "/s";
  line.scheduler = "/bin/s";
  line.softgpu = "/lib/soft";
  const Supervisor::Options options = SupervisorOptions(line);
  EXPECT_EQ(options.state_directory, "/s");
  EXPECT_TRUE(options.may_start);
  EXPECT_EQ(options.command(kUuid, "/d").front(), "/bin/s");
  EXPECT_THAT(options.command(kUuid, "/d"), Contains("/lib/soft"));
  line.log_format = "json";
  EXPECT_THAT(SupervisorOptions(line).command(kUuid, "/d"), Contains("json"));
  line.schedulers = "only";
  EXPECT_TRUE(SupervisorOptions(line).may_start);
  line.schedulers = "adopt";
  EXPECT_FALSE(SupervisorOptions(line).may_start);
}

// Without kubelet and scheduler.
class NodeAgentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "node_agentXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    state_ = name;
    line_.state_directory = line_.kubelet_directory = state_;
    line_.schedulers = "adopt";
    line_.softgpu = "/no driver";  // nothing reports faults
    line_.shim = state_ + "/cuda.so";
    line_.nvml = state_ + "/nvml.so";
    line_.trace = state_ + "/trace";
    line_.policy = state_ + "/policy.yaml";
    std::ofstream(line_.shim) << "\177ELF";
    std::ofstream(line_.nvml) << "\177ELF of NVML";
    std::ofstream(line_.trace) << "\177ELF of a program";
    std::ofstream(line_.policy) << "defaults: {memory: 1GiB}\n";
  }
  void TearDown() override { fs::remove_all(state_); }

  // On a node without a GPU.
  absl::Status OpenEmpty(bool is_unusable) {
    Inventory inventory;
    inventory.is_unusable = is_unusable;
    inventory.trouble = "no GPU is here";
    agent_.emplace(line_, inventory, std::map<std::string, Capacity>{}, SupervisorOptions(line_),
                   &clock_);
    return agent_->Open();
  }

  absl::Status Open() {
    Inventory inventory;
    inventory.gpus.emplace_back().uuid = kUuid;
    agent_.emplace(line_, inventory,
                   std::map<std::string, Capacity>{{kUuid, {kUuid, 140 * kGiB, kGiB, line_.slots}}},
                   SupervisorOptions(line_), &clock_);
    return agent_->Open();
  }

  absl::Status Probe(ProbeKind kind) {
    agent_->Tick(clock_.Now());
    return gpuloom::Probe(state_, kind);
  }

  std::string state_;
  CommandLine line_;
  TestingClock clock_;
  std::optional<NodeAgent> agent_;
};

TEST_F(NodeAgentTest, ServesTheKubeletBetweenOpenAndStop) {
  line_.slots = 7;
  const absl::Status status = Open();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(fs::is_directory(state_ + "/gpus/" + kUuid));
  EXPECT_THAT(ListPluginSockets(state_), IsEmpty());
  agent_->Tick(clock_.Now());
  ASSERT_THAT(ListPluginSockets(state_), SizeIs(1));
  EXPECT_TRUE(IsServedNearby(ListPluginSockets(state_).front()));
  // Served, but no kubelet has registered it.
  EXPECT_TRUE(gpuloom::Probe(state_, ProbeKind::kLive).ok());
  EXPECT_THAT(std::string(gpuloom::Probe(state_, ProbeKind::kReady).message()),
              HasSubstr(kNotRegistered));
  agent_->Stop();
  EXPECT_THAT(ListPluginSockets(state_), IsEmpty());
  EXPECT_THAT(std::string(gpuloom::Probe(state_, ProbeKind::kLive).message()),
              HasSubstr("no agent of this container"));
}

TEST_F(NodeAgentTest, TheLastGpuThatIsTakenOutIsForgottenIfItWasDrained) {
  const std::string drained = state_ + "/gpus/" + kUuid;
  const std::string lost = state_ + "/gpus/GPU-lost";
  fs::create_directories(drained);
  fs::create_directories(lost);
  std::string error;
  ASSERT_TRUE(WriteDrainOrder(drained, {1, "swap"}, &error)) << error;
  ASSERT_TRUE(OpenEmpty(/*is_unusable=*/true).ok());
  agent_->Tick(clock_.Now());
  EXPECT_TRUE(fs::exists(drained)) << "it may be the one that cannot be used";
  agent_->Stop();
  ASSERT_TRUE(OpenEmpty(/*is_unusable=*/false).ok());
  agent_->Tick(clock_.Now());
  EXPECT_FALSE(fs::exists(drained));
  EXPECT_TRUE(fs::exists(lost));
  agent_->Stop();
  // It is back.
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(ReadDrainOrder(drained).has_value());
  EXPECT_FALSE(fs::exists(state_ + "/gone-gpus/" + kUuid));
}

TEST_F(NodeAgentTest, TheLastGpuThatIsTakenOutStaysWhileSomebodyHoldsIt) {
  const std::string drained = state_ + "/gpus/" + kUuid;
  fs::create_directories(drained);
  AllocationBook book(state_);
  std::vector<std::string> complaints;
  ASSERT_TRUE(book.Load(&complaints).ok());
  ASSERT_TRUE(book.Add(kUuid, {MakeDeviceId(kUuid, 0)}, {}, clock_.Now(), kGiB, {}).ok());
  std::string error;
  ASSERT_TRUE(WriteDrainOrder(drained, {1, "swap"}, &error)) << error;
  ASSERT_TRUE(OpenEmpty(/*is_unusable=*/false).ok());
  agent_->Tick(clock_.Now());
  EXPECT_TRUE(fs::exists(drained));
}

TEST_F(NodeAgentTest, ASocketThatACrashLeftBehindIsRemoved) {
  const std::string left = state_ + "/gpuloom-0badf00d.sock";
  { const channel::UniqueFd listener = channel::ListenAt(left.c_str()); }
  ASSERT_TRUE(fs::is_socket(left));
  EXPECT_FALSE(IsServedNearby(left));
  ASSERT_TRUE(Open().ok());
  agent_->Tick(clock_.Now());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_THAT(ListPluginSockets(state_), SizeIs(1));
  agent_->Stop();
}

// Whoever asks for the figures asks beside the agent's loop.
TEST_F(NodeAgentTest, ServesItsFiguresWhileItIsInCharge) {
  std::string error;
  line_.metrics_address = ParseListenAddress("127.0.0.1:0", &error);
  ASSERT_TRUE(Open().ok());
  agent_->Tick(clock_.Now());
  ASSERT_TRUE(WaitFor([this] { return agent_->metrics_port() != 0; }));
  const auto has = [&](const std::string& line) {
    return WaitFor([&] {
      return HttpGet(agent_->metrics_port(), "/metrics").find("\n" + line + "\n") !=
             std::string::npos;
    });
  };
  EXPECT_TRUE(has("gpuloom_gpu_slots{gpu=\"" + std::string(kUuid) + "\"} 10"));
  EXPECT_TRUE(has("gpuloom_gpu_healthy{gpu=\"" + std::string(kUuid) + "\"} 0"));
  EXPECT_TRUE(has("gpuloom_kubelet_watches 0"));
  EXPECT_TRUE(has("gpuloom_policy_generation 1"));
  EXPECT_TRUE(has("gpuloom_policy_error 0"));
  EXPECT_TRUE(WaitFor([this] {
    std::error_code error;
    const uintmax_t size_bytes = fs::file_size(state_ + "/metrics.json", error);
    return !error && size_bytes != 0;
  }));
  std::ofstream(line_.policy) << "defaults: {memory: 40GiB}\n";
  clock_.Advance(Upkeep::kPolicyPause);
  agent_->Tick(clock_.Now());
  agent_->Tick(clock_.Now());
  EXPECT_TRUE(has("gpuloom_policy_rules_impossible{gpu=\"" + std::string(kUuid) + "\"} 1"));
  EXPECT_TRUE(has("gpuloom_policy_error 0"));
  std::ofstream(line_.policy) << "defaults: {memory: 40 elephants}\n";
  clock_.Advance(Upkeep::kPolicyPause);
  agent_->Tick(clock_.Now());
  EXPECT_TRUE(has("gpuloom_policy_error 1"));
  agent_->Rest();
  EXPECT_EQ(agent_->metrics_port(), 0);
  agent_->Resume();
  EXPECT_TRUE(WaitFor([this] { return agent_->metrics_port() != 0; }));
  agent_->Stop();
  EXPECT_EQ(agent_->metrics_port(), 0);
}

TEST_F(NodeAgentTest, WhatTheOperatorMustMendIsNamed) {
  line_.pinned_limit = "much";
  EXPECT_THAT(std::string(Open().message()), HasSubstr("much"));
  line_.pinned_limit = "1GiB";
  line_.nvml = state_ + "/missing.so";
  EXPECT_THAT(std::string(Open().message()), HasSubstr("missing.so"));
}

TEST_F(NodeAgentTest, AWrongPolicyIsNoEndOfTheAgentAndItsReadinessSaysWhy) {
  ASSERT_TRUE(Open().ok());
  EXPECT_THAT(std::string(Probe(ProbeKind::kReady).message()), HasSubstr(kNotRegistered));
  agent_->Stop();
  // The state knows the last good one.
  std::ofstream(line_.policy) << "defaults: {memory: 40 elephants}\n";
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(Probe(ProbeKind::kLive).ok());
  EXPECT_THAT(std::string(Probe(ProbeKind::kReady).message()),
              AllOf(HasSubstr(line_.policy), HasSubstr("40 elephants"),
                    HasSubstr("the last good policy stays in force")));
  agent_->Stop();
  // And a first start knows none.
  fs::remove(state_ + "/last-good-policy.yaml");
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(Probe(ProbeKind::kLive).ok());
  EXPECT_THAT(std::string(Probe(ProbeKind::kReady).message()), HasSubstr("no policy is in force"));
  std::ofstream(line_.policy) << "defaults: {memory: 2GiB}\n";
  clock_.Advance(Upkeep::kPolicyPause);
  agent_->Tick(clock_.Now());
  EXPECT_THAT(std::string(Probe(ProbeKind::kReady).message()), HasSubstr(kNotRegistered));
  agent_->Stop();
}

TEST_F(NodeAgentTest, APolicyThatIsPartlyImpossibleIsInForceAndReadinessSaysWhatIsNot) {
  std::ofstream(line_.policy) << "defaults: {memory: 1GiB}\nnamespaces: {a: {memory: 40GiB}}\n";
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(Probe(ProbeKind::kLive).ok());
  EXPECT_THAT(std::string(Probe(ProbeKind::kReady).message()),
              AllOf(HasSubstr(line_.policy + ":2:26: namespaces.a.memory: "),
                    HasSubstr("is more than GPU " + std::string(kUuid))));
  std::ofstream(line_.policy) << "defaults: {memory: 1GiB}\n";
  clock_.Advance(Upkeep::kPolicyPause);
  agent_->Tick(clock_.Now());
  EXPECT_THAT(std::string(Probe(ProbeKind::kReady).message()),
              AllOf(HasSubstr(kNotRegistered), Not(HasSubstr("is more than"))));
  agent_->Stop();
}

TEST_F(NodeAgentTest, ANodeWithoutAGpuIsServedAndAnUnusableGpuMakesItUnready) {
  Inventory inventory;
  inventory.trouble = "nvml: init: Driver Not Loaded";
  for (const bool is_unusable : {false, true}) {
    inventory.is_unusable = is_unusable;
    agent_.emplace(line_, inventory, std::map<std::string, Capacity>(), SupervisorOptions(line_),
                   &clock_);
    ASSERT_TRUE(agent_->Open().ok());
    EXPECT_TRUE(Probe(ProbeKind::kLive).ok());
    EXPECT_THAT(std::string(Probe(ProbeKind::kReady).message()),
                HasSubstr(is_unusable ? "nvml: init: Driver Not Loaded" : kNotRegistered));
    agent_->Stop();
  }
}

TEST_F(NodeAgentTest, TheFolderOfAGpuThatWasTakenOutIsSetAsideOnceNobodyHoldsIt) {
  const char kGone[] = "GPU-aaaaaaaa-0000-0000-0000-00000000000f";
  const std::string folder = FolderOfGpu(state_, kGone);
  fs::create_directories(folder);
  AllocationBook book(state_);
  std::vector<std::string> complaints;
  ASSERT_TRUE(book.Load(&complaints).ok());
  const auto held = book.Add(kGone, {"gpu-aaaaaaaa-0000-0000-0000-00000000000f::0"}, {}, {});
  ASSERT_TRUE(held.ok()) << held.status();
  ASSERT_TRUE(Open().ok());
  agent_->Tick(clock_.Now());
  EXPECT_TRUE(fs::exists(folder)) << "somebody holds it";
  ASSERT_TRUE(book.Remove(held->name).ok());
  clock_.Advance(Upkeep::kSweepPause);
  agent_->Tick(clock_.Now());
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_TRUE(fs::is_directory(state_ + "/gpus/" + kUuid));
  agent_->Stop();
  // A driver that says nothing has not taken all of them out.
  agent_.emplace(line_, Inventory(), std::map<std::string, Capacity>(), SupervisorOptions(line_),
                 &clock_);
  ASSERT_TRUE(agent_->Open().ok());
  clock_.Advance(Upkeep::kSweepPause);
  agent_->Tick(clock_.Now());
  EXPECT_TRUE(fs::is_directory(state_ + "/gpus/" + kUuid));
  agent_->Stop();
}

}  // namespace
}  // namespace gpuloom
