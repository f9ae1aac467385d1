// SPDX-License-Identifier: Apache-2.0
#include "agent/upkeep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "agent/inventory/slots.h"
#include "agent/plugin/plugin_server.h"
#include "agent/testing_clock.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const char kUuid[] = "GPU-aaaaaaaa-0000-0000-0000-000000000001";
constexpr uint64_t kGiB = uint64_t{1} << 30;

// Remembers the quotas it was told, and how often it was asked for unsupported calls.
class FakeScheduler : public SchedulerClient {
 public:
  absl::Status AddAllocation(const std::string& name, const std::string&, int) override {
    names.insert(name);
    return absl::OkStatus();
  }
  absl::Status BindAllocation(const BindOrder& order) override {
    quotas.push_back(order.memory_quota_bytes);
    return absl::OkStatus();
  }
  absl::Status PrepareExecutor(const std::string& name) override {
    prepared.push_back(name);
    return absl::OkStatus();
  }
  absl::Status RemoveAllocation(const std::string& name) override {
    names.erase(name);
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> ListAllocations() override {
    return std::vector<std::string>(names.begin(), names.end());
  }
  absl::StatusOr<std::vector<UnsupportedCalls>> ListUnsupported() override {
    ++looks;
    return std::vector<UnsupportedCalls>{};
  }
  absl::StatusOr<GpuReport> Report() override { return GpuReport{}; }
  bool IsConnected() override { return is_connected; }

  std::set<std::string> names;
  std::vector<std::string> prepared;
  std::vector<uint64_t> quotas;
  int looks = 0;
  bool is_connected = true;
};

class FakePodResources : public PodResources {
 public:
  absl::StatusOr<std::vector<ContainerDevices>> List() override { return held; }
  std::vector<ContainerDevices> held;
};

// The agent without a kubelet: its directory is empty.
class UpkeepTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "upkeepXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    state_ = name;
    std::vector<std::string> complaints;
    book_.emplace(state_);
    ASSERT_TRUE(book_->Load(&complaints).ok());
    shims_.emplace(state_);
    kubelet_record_.emplace(state_);
    for (const char* file : {"/cuda.so", "/nvml.so"}) std::ofstream(state_ + file) << "\177ELF";
    WritePolicy("1GiB");
    policy_.emplace(state_ + "/policy.yaml");
    ASSERT_EQ(policy_->LoadFirst().outcome, PolicyWatcher::Outcome::kReloaded);

    Supervisor::Options supervisor;
    supervisor.state_directory = state_;
    supervisor.may_start = false;
    supervisor.connect =
        [this](const std::string&) -> absl::StatusOr<std::shared_ptr<SchedulerClient>> {
      if (scheduler_ == nullptr) return absl::NotFoundError("scheduler: nobody listens");
      return std::shared_ptr<SchedulerClient>(scheduler_);
    };
    supervisor.on_connected = [](const std::string&, SchedulerClient*) { return absl::OkStatus(); };
    supervisor_.emplace(std::move(supervisor));
    ASSERT_TRUE(supervisor_->AddGpu(kUuid).ok());

    Allocator::Options allocator;
    allocator.book = &*book_;
    allocator.kubelet_record = &*kubelet_record_;
    allocator.shims = &*shims_;
    allocator.library_files = {*shims_->Install(state_ + "/cuda.so", "1"),
                               *shims_->Install(state_ + "/nvml.so", "1")};
    allocator.policy = &*policy_;
    allocator.pod_resources = &pods_;
    allocator.clock = &clock_;
    allocator.capacities[kUuid] = {kUuid, 140 * kGiB, 6 * kGiB, 2};
    allocator.scheduler = [this](const std::string& gpu) { return supervisor_->Client(gpu); };
    allocator.collector_times = {std::chrono::seconds(0), std::chrono::seconds(3)};
    allocator_.emplace(std::move(allocator));

    Gpu gpu;
    gpu.uuid = kUuid;
    board_.emplace(std::vector<Gpu>{gpu}, 2);
    server_.emplace(&*board_, &*allocator_);
    registrar_.emplace(
        Registrar::Options{state_, "gpuloom-1.sock", "gpuloom.io/gpu", [](const std::string&) {}},
        &*server_, &*server_, &clock_);
    allocator_->KubeletSeen("kubelet 1");
    Upkeep::Options options;
    options.gpus = {gpu};
    options.policy_file = state_ + "/policy.yaml";
    options.missing = std::chrono::seconds(3);
    options.supervisor = &*supervisor_;
    options.board = &*board_;
    options.registrar = &*registrar_;
    options.policy = &*policy_;
    options.allocator = &*allocator_;
    upkeep_.emplace(std::move(options));
  }
  void TearDown() override {
    server_->Stop();
    fs::remove_all(state_);
  }

  void WritePolicy(const std::string& memory) {
    std::ofstream(state_ + "/policy.yaml") << "defaults: {memory: " << memory << "}\n";
  }
  void TickAfter(Clock::Duration pause) {
    clock_.Advance(pause);
    upkeep_->Tick(clock_.Now());
  }
  bool IsHealthy() {
    uint64_t version = 0;
    const std::vector<Slot> slots = board_->Slots(&version);
    EXPECT_EQ(slots.size(), 2u);
    return std::all_of(slots.begin(), slots.end(), [](const Slot& s) { return s.is_healthy; });
  }
  // A container that runs, with one slot.
  void StartContainer() {
    const std::vector<std::string> ids = {MakeDeviceId(kUuid, 0)};
    ASSERT_TRUE(allocator_->Allocate(ids).ok());
    pods_.held = {{{"team-a", "pod-1", "main"}, ids}};
    const absl::Status status = allocator_->PreStart(ids);
    ASSERT_TRUE(status.ok()) << status;
  }

  std::string state_;
  TestingClock clock_;
  FakePodResources pods_;
  std::shared_ptr<FakeScheduler> scheduler_ = std::make_shared<FakeScheduler>();
  std::optional<AllocationBook> book_;
  std::optional<KubeletRecord> kubelet_record_;
  std::optional<ShimStore> shims_;
  std::optional<PolicyWatcher> policy_;
  std::optional<Supervisor> supervisor_;
  std::optional<Allocator> allocator_;
  std::optional<DeviceBoard> board_;
  std::optional<PluginServer> server_;
  std::optional<Registrar> registrar_;
  std::optional<Upkeep> upkeep_;
};

TEST_F(UpkeepTest, AGpuIsHealthyUntilItsSchedulerIsGoneForAWhile) {
  const auto old = std::move(scheduler_);
  TickAfter({});
  EXPECT_FALSE(IsHealthy());
  scheduler_ = old;
  TickAfter(std::chrono::minutes(1));
  EXPECT_TRUE(IsHealthy());
  old->is_connected = false;
  scheduler_ = nullptr;
  TickAfter(Upkeep::kUnhealthyAfter - std::chrono::milliseconds(1));
  EXPECT_TRUE(IsHealthy());
  TickAfter(std::chrono::milliseconds(1));
  EXPECT_FALSE(IsHealthy());
  scheduler_ = std::make_shared<FakeScheduler>();
  TickAfter(std::chrono::minutes(1));
  EXPECT_TRUE(IsHealthy());
}

TEST_F(UpkeepTest, AChangedPolicyIsGrantedToWhatRunsWhenItIsLookedAt) {
  TickAfter({});
  StartContainer();
  EXPECT_THAT(scheduler_->quotas, ElementsAre(kGiB));
  upkeep_->Tick(clock_.Now() + Upkeep::kPolicyPause);
  clock_.Advance(Upkeep::kPolicyPause);
  WritePolicy("2GiB");
  TickAfter(Upkeep::kPolicyPause - std::chrono::milliseconds(1));
  EXPECT_THAT(scheduler_->quotas, SizeIs(1));
  TickAfter(std::chrono::milliseconds(1));
  EXPECT_THAT(scheduler_->quotas, ElementsAre(kGiB, 2 * kGiB));
  // One that is refused changes nothing.
  WritePolicy("2 elephants");
  TickAfter(Upkeep::kPolicyPause);
  EXPECT_THAT(scheduler_->quotas, SizeIs(2));
}

TEST_F(UpkeepTest, AWrongPolicyIsShownAndTakesNoGpuAway) {
  TickAfter(std::chrono::minutes(1));
  EXPECT_EQ(board_->Trouble(), "");
  WritePolicy("2 elephants");
  TickAfter(std::chrono::minutes(1));
  TickAfter(std::chrono::minutes(1));
  EXPECT_THAT(board_->Trouble(), HasSubstr("2 elephants"));
  EXPECT_TRUE(IsHealthy());
  WritePolicy("2GiB");
  TickAfter(std::chrono::minutes(1));
  TickAfter(std::chrono::minutes(1));
  EXPECT_EQ(board_->Trouble(), "");
}

TEST_F(UpkeepTest, WithoutAnyPolicyNothingIsOffered) {
  WritePolicy("2 elephants");
  policy_.emplace(state_ + "/policy.yaml");
  ASSERT_EQ(policy_->LoadFirst().outcome, PolicyWatcher::Outcome::kRefused);
  TickAfter(std::chrono::minutes(1));
  EXPECT_FALSE(IsHealthy());
  EXPECT_THAT(board_->Trouble(), HasSubstr("2 elephants"));
  WritePolicy("2GiB");
  TickAfter(std::chrono::minutes(1));
  TickAfter(std::chrono::minutes(1));
  EXPECT_TRUE(IsHealthy());
  EXPECT_EQ(board_->Trouble(), "");
}

TEST_F(UpkeepTest, UnsupportedCallsAreAskedForNowAndThen) {
  TickAfter({});
  EXPECT_EQ(scheduler_->looks, 1);
  TickAfter(Upkeep::kUnsupportedPause - std::chrono::milliseconds(1));
  EXPECT_EQ(scheduler_->looks, 1);
  TickAfter(std::chrono::milliseconds(1));
  EXPECT_EQ(scheduler_->looks, 2);
}

TEST_F(UpkeepTest, WhatAPodLeftBehindIsCollected) {
  TickAfter({});
  StartContainer();
  EXPECT_THAT(scheduler_->names, SizeIs(1));
  for (int i = 0; i < 5; ++i) TickAfter(std::chrono::seconds(4));
  EXPECT_THAT(scheduler_->names, SizeIs(1));
  pods_.held.clear();
  for (int i = 0; i < 5; ++i) TickAfter(std::chrono::seconds(4));
  EXPECT_THAT(scheduler_->names, IsEmpty());
}

}  // namespace
}  // namespace gpuloom
