// SPDX-License-Identifier: Apache-2.0
#include "agent/upkeep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "agent/events/event.h"
#include "agent/inventory/slots.h"
#include "agent/inventory/testing/driver_gate.h"
#include "agent/node/lock_file.h"
#include "agent/plugin/plugins.h"
#include "agent/supervisor/scheduler_process.h"
#include "agent/testing/clock.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

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
    if (order.memory_quota_bytes > refuses_above_bytes)
      return absl::FailedPreconditionError("scheduler: no");
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
  absl::StatusOr<GpuReport> Report() override { return report; }
  bool IsConnected() override { return is_connected; }

  std::set<std::string> names;
  std::vector<std::string> prepared;
  std::vector<uint64_t> quotas;
  uint64_t refuses_above_bytes = UINT64_MAX;
  int looks = 0;
  GpuReport report;
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
    allocator.closed = [this](const std::string& gpu) {
      return DrainReason(FolderOfGpu(state_, gpu));
    };
    allocator.scheduler = [this](const std::string& gpu) { return supervisor_->Client(gpu); };
    allocator.scheduler_is_gone = [this](const std::string& gpu) {
      return IsSchedulerGone(FolderOfGpu(state_, gpu));
    };
    allocator.collector_times = {std::chrono::seconds(0), std::chrono::seconds(3)};
    allocator_.emplace(std::move(allocator));

    Gpu gpu;
    gpu.uuid = kUuid;
    board_.emplace(std::vector<Gpu>{gpu}, 2);
    plugins_.emplace(Plugins::Options{
        state_, "gpuloom.io/gpu", {}, &*board_, &*allocator_, &refusals_, nullptr, &clock_});
    allocator_->KubeletSeen("kubelet 1");
    health_.emplace(GpuHealth::Options{{kUuid},
                                       "",
                                       [this](const std::string&, const std::atomic<bool>&) {
                                         ++probes_;
                                         return ProbeResult{true, probe_trouble_};
                                       },
                                       &clock_});
    BeginStandings();
    Upkeep::Options options;
    options.gpus = {gpu};
    options.policy_file = state_ + "/policy.yaml";
    options.missing = std::chrono::seconds(3);
    options.supervisor = &*supervisor_;
    options.standings = &*standings_;
    options.board = &*board_;
    options.plugins = &*plugins_;
    options.policy = &*policy_;
    options.allocator = &*allocator_;
    options.health = &*health_;
    options.report = [this](const Event& event) { events_.push_back(event); };
    upkeep_.emplace(std::move(options));
  }
  void TearDown() override {
    plugins_->Stop();
    fs::remove_all(state_);
  }

  // As another agent's.
  void BeginStandings() {
    standings_.emplace(GpuStandings::Options{
        {Gpu{kUuid, "", 0, 0, -1}},
        state_,
        &*supervisor_,
        &*board_,
        &*policy_,
        &*allocator_,
        &*health_,
        [this](const Gpu&, const GpuStanding& before, const GpuStanding& now) {
          changes_.push_back(std::string(kGpuStateNames[static_cast<size_t>(before.state)]) + " " +
                             kGpuStateNames[static_cast<size_t>(now.state)]);
        },
        [this](const Gpu&, const GpuReport&) { ++reports_; }});
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
    const std::vector<ShownDevice> slots = board_->Devices(1, &version);
    EXPECT_EQ(slots.size(), 2u);
    return std::all_of(slots.begin(), slots.end(),
                       [](const ShownDevice& s) { return s.is_healthy; });
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
  RefusedRequests refusals_{{}};
  std::optional<Plugins> plugins_;
  std::optional<GpuHealth> health_;
  std::string probe_trouble_;
  int probes_ = 0;
  int reports_ = 0;  // that were read
  std::vector<std::string> changes_;
  std::vector<Event> events_;
  std::optional<GpuStandings> standings_;
  std::optional<Upkeep> upkeep_;
};

// The next agent begins with it: a sick GPU must not look healthy there until it was probed.
TEST_F(UpkeepTest, AStandingThatCouldNotBeWrittenIsWrittenOnceItCan) {
  TickAfter({});
  fs::rename(FolderOfGpu(state_, kUuid), state_ + "/away");
  probe_trouble_ = "cuda: 999";
  health_->Suspect(kUuid);
  health_->Look();
  TickAfter(std::chrono::seconds(1));
  fs::rename(state_ + "/away", FolderOfGpu(state_, kUuid));
  TickAfter(std::chrono::seconds(1));
  EXPECT_EQ(ReadStanding(FolderOfGpu(state_, kUuid))->sickness, "cuda: 999");
}

TEST_F(UpkeepTest, AGpuIsHealthyUntilItsSchedulerIsGoneForAWhile) {
  const auto old = std::move(scheduler_);
  TickAfter({});
  EXPECT_FALSE(IsHealthy());
  scheduler_ = old;
  TickAfter(std::chrono::minutes(1));
  EXPECT_TRUE(IsHealthy());
  old->is_connected = false;
  scheduler_ = nullptr;
  TickAfter(GpuStandings::kUnhealthyAfter - std::chrono::milliseconds(1));
  EXPECT_TRUE(IsHealthy());
  TickAfter(std::chrono::milliseconds(1));
  EXPECT_FALSE(IsHealthy());
  scheduler_ = std::make_shared<FakeScheduler>();
  TickAfter(std::chrono::minutes(1));
  EXPECT_TRUE(IsHealthy());
}

TEST_F(UpkeepTest, ADrainedGpuIsOfferedToNobodyUntilThatIsUndone) {
  TickAfter(std::chrono::minutes(1));
  ASSERT_TRUE(IsHealthy());
  StartContainer();
  const std::string folder = state_ + "/gpus/" + kUuid;
  std::string error;
  ASSERT_TRUE(WriteDrainOrder(folder, {1'700'000'000, "new fans"}, &error)) << error;
  TickAfter(std::chrono::milliseconds(200));
  EXPECT_FALSE(IsHealthy());
  EXPECT_EQ(board_->Trouble(), "") << "there is nothing to mend";
  EXPECT_EQ(board_->StandingOf(kUuid).reason, "drained by operator: new fans");
  ASSERT_TRUE(ReadStanding(folder).has_value());
  EXPECT_EQ(ReadStanding(folder)->state, GpuState::kDrained);
  EXPECT_THAT(changes_, ElementsAre("unavailable healthy", "healthy drained"));

  // What runs may start again; whoever was given slots and has not started may not.
  EXPECT_TRUE(allocator_->PreStart({MakeDeviceId(kUuid, 0)}).ok());
  EXPECT_THAT(std::string(allocator_->Allocate({MakeDeviceId(kUuid, 1)}).status().message()),
              HasSubstr("drained by operator: new fans"));

  ASSERT_TRUE(RemoveDrainOrder(folder, &error)) << error;
  TickAfter(std::chrono::milliseconds(200));
  EXPECT_TRUE(IsHealthy());
  EXPECT_EQ(ReadStanding(folder)->state, GpuState::kHealthy);
  EXPECT_TRUE(allocator_->Allocate({MakeDeviceId(kUuid, 1)}).ok());
}

TEST_F(UpkeepTest, ExecutorsThatDoNotStartMakeAGpuSickIfAProbeFailsToo) {
  scheduler_->report.tells_gpu = true;
  TickAfter(std::chrono::minutes(1));
  health_->Look();
  EXPECT_EQ(probes_, 0);
  scheduler_->report.gpu.executors_failed = 8;
  TickAfter(GpuStandings::kExecutorPause);
  health_->Look();
  TickAfter(GpuStandings::kExecutorPause);
  health_->Look();
  EXPECT_EQ(probes_, 1);
  TickAfter(GpuStandings::kExecutorPause);
  EXPECT_TRUE(IsHealthy());

  probe_trouble_ = "cuda: cuInit: CUDA_ERROR_NO_DEVICE (100)";
  scheduler_->report.gpu.executors_failed = 9;
  TickAfter(Sickness::kCheckPause);
  health_->Look();
  EXPECT_EQ(probes_, 2);
  TickAfter(std::chrono::milliseconds(200));
  EXPECT_FALSE(IsHealthy());
  EXPECT_THAT(board_->Trouble(), AllOf(HasSubstr(kUuid), HasSubstr("CUDA_ERROR_NO_DEVICE")));
  EXPECT_EQ(board_->StandingOf(kUuid).state, GpuState::kSick);

  probe_trouble_.clear();
  TickAfter(Sickness::kFirstPause);
  health_->Look();
  TickAfter(std::chrono::milliseconds(200));
  EXPECT_TRUE(IsHealthy());
  EXPECT_EQ(board_->Trouble(), "");
  EXPECT_THAT(changes_, ElementsAre("unavailable healthy", "healthy sick", "sick healthy"));
}

TEST_F(UpkeepTest, ExecutorsLostByTwoNamespacesHaveTheGpuProbedAndOneTenantsDoNot) {
  GpuReport& report = scheduler_->report;
  report.tells_gpu = true;
  for (const char* pod_namespace : {"team-a", "team-b"}) {
    control::SetText(report.domains.emplace_back().name, pod_namespace);
    control::SetText(report.allocations.emplace_back().trust_domain, pod_namespace);
    control::SetText(report.allocations.back().pod_namespace, pod_namespace);
  }
  const auto lose = [&](size_t domain) {
    ++report.domains[domain].executors_lost;
    TickAfter(GpuStandings::kExecutorPause);
    health_->Look();
  };
  TickAfter(std::chrono::minutes(1));
  for (int i = 0; i < 20; ++i) lose(0);
  EXPECT_EQ(probes_, 0);
  lose(1);
  EXPECT_EQ(probes_, 1);
  EXPECT_TRUE(IsHealthy()) << "the probe decides";
  probe_trouble_ = "cuda: cuMemsetD32: CUDA_ERROR_UNKNOWN (999)";
  TickAfter(Sickness::kCheckPause);
  lose(0);
  lose(1);
  EXPECT_EQ(probes_, 2);
  TickAfter(std::chrono::milliseconds(200));
  EXPECT_EQ(board_->StandingOf(kUuid).state, GpuState::kSick);
}

// What a pod's program does in the first second is news only to who has looked before.
TEST_F(UpkeepTest, ASchedulersFirstReportIsReadBeforeItsGpuIsOffered) {
  scheduler_->report.tells_gpu = true;
  const auto late = std::exchange(scheduler_, nullptr);
  TickAfter({});
  scheduler_ = late;
  for (int i = 0; i < 300 && !IsHealthy(); ++i) TickAfter(std::chrono::milliseconds(200));
  ASSERT_TRUE(IsHealthy());
  EXPECT_EQ(reports_, 1);
  TickAfter(std::chrono::milliseconds(200));
  EXPECT_LE(reports_, 2) << "from then on now and then";
}

TEST_F(UpkeepTest, AnotherAgentKnowsHowAGpuStood) {
  TickAfter(std::chrono::minutes(1));
  const int64_t since = board_->StandingOf(kUuid).since_unix_s;
  EXPECT_NE(since, 0);
  changes_.clear();
  BeginStandings();
  TickAfter(std::chrono::minutes(1));
  EXPECT_EQ(board_->StandingOf(kUuid).since_unix_s, since);
  EXPECT_THAT(changes_, IsEmpty());
}

// As of a disk's error, or a process without file descriptors.
TEST_F(UpkeepTest, AStandingThatCannotBeReadIsReadAgainBeforeItIsWrittenOver) {
  TickAfter(std::chrono::minutes(1));
  const int64_t since = board_->StandingOf(kUuid).since_unix_s;
  const std::string path = StandingPath(FolderOfGpu(state_, kUuid));
  fs::rename(path, path + ".away");
  fs::create_symlink(path, path);
  BeginStandings();
  changes_.clear();
  TickAfter(std::chrono::seconds(1));
  TickAfter(std::chrono::seconds(1));
  EXPECT_TRUE(fs::is_symlink(path));
  EXPECT_TRUE(IsHealthy());
  fs::rename(path + ".away", path);
  TickAfter(std::chrono::seconds(1));
  EXPECT_EQ(board_->StandingOf(kUuid).since_unix_s, since);
  EXPECT_THAT(changes_, IsEmpty());
  // In the long run the present standing counts more.
  fs::remove(path);
  fs::create_symlink(path, path);
  BeginStandings();
  TickAfter(std::chrono::seconds(1));
  TickAfter(GpuStandings::kUnhealthyAfter);
  EXPECT_EQ(ReadStanding(FolderOfGpu(state_, kUuid))->state, GpuState::kHealthy);
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

TEST_F(UpkeepTest, AGrantThatFailsIsTriedAgainAndShownUntilItIsDone) {
  TickAfter(std::chrono::minutes(1));
  StartContainer();
  const auto before = spdlog::default_logger();
  std::ostringstream log;
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  const auto said = [&log](const std::string& text) {
    const std::string all = log.str();
    int times = 0;
    for (size_t at = all.find(text); at != all.npos; at = all.find(text, at + 1)) ++times;
    return times;
  };
  scheduler_->refuses_above_bytes = kGiB;
  WritePolicy("2GiB");
  for (int i = 0; i < 3; ++i) TickAfter(Upkeep::kSweepPause);
  EXPECT_THAT(
      board_->Trouble(),
      AllOf(HasSubstr("pod team-a/pod-1, container main keeps its old grant: scheduler: no"),
            HasSubstr("tried again")));
  EXPECT_TRUE(IsHealthy());
  EXPECT_EQ(said("keeps its old grant"), 1);
  scheduler_->refuses_above_bytes = 2 * kGiB;
  TickAfter(Upkeep::kSweepPause);
  EXPECT_EQ(scheduler_->quotas.back(), 2 * kGiB);
  EXPECT_EQ(book_->All().front().binding->quota_bytes, 2 * kGiB);
  TickAfter(Upkeep::kSweepPause);
  EXPECT_EQ(board_->Trouble(), "");
  EXPECT_EQ(said("no pod keeps an old grant any more"), 1);
  const size_t told = scheduler_->quotas.size();
  for (int i = 0; i < 3; ++i) TickAfter(Upkeep::kSweepPause);
  EXPECT_EQ(scheduler_->quotas.size(), told) << "there is nothing left to do";
  spdlog::set_default_logger(before);
}

TEST_F(UpkeepTest, WhatALeavingAgentGrantedByAnOlderPolicyIsGrantedAnewWhenItHasEnded) {
  upkeep_->Tick(clock_.Now(), /*has_predecessor=*/true);
  StartContainer();
  const Allocation granted = book_->All().front();
  WritePolicy("2GiB");
  clock_.Advance(Upkeep::kPolicyPause);
  upkeep_->Tick(clock_.Now(), /*has_predecessor=*/true);
  EXPECT_THAT(scheduler_->quotas, ElementsAre(kGiB, 2 * kGiB));
  // It knows the policy of before, and admits the container that starts again.
  ASSERT_TRUE(book_->Bind(granted.name, *granted.binding).ok());
  upkeep_->Tick(clock_.Now(), /*has_predecessor=*/true);
  EXPECT_THAT(scheduler_->quotas, SizeIs(2));
  upkeep_->Tick(clock_.Now(), /*has_predecessor=*/false);
  EXPECT_THAT(scheduler_->quotas, ElementsAre(kGiB, 2 * kGiB, 2 * kGiB));
  EXPECT_EQ(book_->All().front().binding->quota_bytes, 2 * kGiB);
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

TEST_F(UpkeepTest, ADriverThatHangsIsSaidOnceAndTakesNoGpuAway) {
  const auto gate = std::make_shared<DriverGate>();
  gate->Hang(true);
  GpuHealth::Options options;
  options.gpu_uuids = {kUuid};
  options.probe = [](const std::string&, const std::atomic<bool>&) {
    return ProbeResult{true, ""};
  };
  options.clock = &clock_;
  options.poll_patience = std::chrono::milliseconds(1);
  options.poll = [gate] {
    gate->Pass();
    return std::vector<GpuFault>();
  };
  health_.emplace(std::move(options));
  health_->Look();
  TickAfter({});
  EXPECT_EQ(board_->Trouble(), "");
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(GpuHealth::kSilence);
    health_->Look();
    TickAfter({});
    EXPECT_THAT(board_->Trouble(), StartsWith("nvml: the driver has not answered for 30 s"));
    EXPECT_TRUE(IsHealthy());
  }
  ASSERT_THAT(events_, SizeIs(1));
  EXPECT_EQ(events_[0].reason, "GpuUnusable");
  EXPECT_EQ(events_[0].message, board_->Trouble());
  gate->Hang(false);
  while (!health_->DriverTrouble().empty()) health_->Look();
  TickAfter({});
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

TEST_F(UpkeepTest, WhatAPodLeftBehindIsCollectedOnceNoSchedulerCanServeIt) {
  TickAfter({});
  StartContainer();
  pods_.held.clear();
  // It hangs.
  LockFile lock = TakeLock(FolderOfGpu(state_, kUuid) + "/" + control::kLockName);
  ASSERT_TRUE(lock.fd.valid()) << lock.error;
  scheduler_->is_connected = false;
  scheduler_ = nullptr;
  for (int i = 0; i < 10; ++i) TickAfter(std::chrono::seconds(4));
  EXPECT_THAT(book_->All(), SizeIs(1));
  // It has ended, and none can be started for a GPU that is gone.
  lock.fd.Reset();
  for (int i = 0; i < 5; ++i) TickAfter(std::chrono::seconds(4));
  EXPECT_THAT(book_->All(), IsEmpty());
}

}  // namespace
}  // namespace gpuloom
