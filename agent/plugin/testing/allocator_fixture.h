// SPDX-License-Identifier: Apache-2.0
// For tests of the allocator.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/inventory/slots.h"
#include "agent/plugin/allocator.h"
#include "agent/testing/clock.h"

namespace gpuloom {

// A GPU of 140 GiB, or several, their schedulers, a kubelet that says what a test wants, and state in a folder of its own.
class AllocatorTest : public ::testing::Test {
 protected:
  static constexpr char kUuid[] = "GPU-aaaaaaaa-0000-0000-0000-000000000001";
  static constexpr char kOtherUuid[] = "GPU-bbbbbbbb-0000-0000-0000-000000000002";
  static constexpr uint64_t kGiB = uint64_t{1} << 30;

  // Remembers what it was told.
  class FakeScheduler : public SchedulerClient {
   public:
    absl::Status AddAllocation(const std::string& name, const std::string& directory,
                               int slots) override {
      added[name] = {directory, slots};
      return absl::OkStatus();
    }
    absl::Status BindAllocation(const BindOrder& order) override {
      if (const auto hook = std::exchange(on_bind, nullptr)) hook();
      if (refuse || order.memory_quota_bytes > refuses_above_bytes)
        return absl::FailedPreconditionError("scheduler: no");
      bound[order.name] = order;
      return absl::OkStatus();
    }
    absl::Status PrepareExecutor(const std::string& name) override {
      prepared.push_back(name);
      return absl::OkStatus();
    }
    absl::Status RemoveAllocation(const std::string& name) override {
      added.erase(name);
      bound.erase(name);
      return absl::OkStatus();
    }
    absl::StatusOr<std::vector<std::string>> ListAllocations() override {
      std::vector<std::string> names;
      for (const auto& [name, what] : added) names.push_back(name);
      return names;
    }
    absl::StatusOr<std::vector<UnsupportedCalls>> ListUnsupported() override {
      return std::vector<UnsupportedCalls>{};
    }
    absl::StatusOr<GpuReport> Report() override { return GpuReport{}; }
    bool IsConnected() override { return true; }

    std::map<std::string, std::pair<std::string, int>> added;
    std::map<std::string, BindOrder> bound;
    std::vector<std::string> prepared;
    bool refuse = false;
    uint64_t refuses_above_bytes = UINT64_MAX;
    std::function<void()> on_bind;  // the next time; may be null
  };

  class FakePodResources : public PodResources {
   public:
    absl::StatusOr<std::vector<ContainerDevices>> List() override {
      if (const auto hook = std::exchange(on_list, nullptr)) hook();
      return held;
    }
    std::vector<ContainerDevices> held;
    std::function<void()> on_list;  // the next time; may be null
  };

  void SetUp() override {
    std::string name = ::testing::TempDir() + "allocatorXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    state_ = name;
    book_.emplace(state_);
    std::vector<std::string> complaints;
    ASSERT_TRUE(book_->Load(&complaints).ok());
    shims_.emplace(state_);
    kubelet_record_.emplace(state_);
    WritePolicy("defaults: {memory: 1GiB}\nnamespaces: {rich: {memory: 2GiB, trustDomain: pod}}\n");
    policy_.emplace(state_ + "/policy.yaml");
    ASSERT_EQ(policy_->LoadFirst().outcome, PolicyWatcher::Outcome::kReloaded);
    Reopen();
  }
  void TearDown() override { std::filesystem::remove_all(state_); }

  void WritePolicy(const std::string& text) { std::ofstream(state_ + "/policy.yaml") << text; }
  // `version`: of the libraries, whose content changes with it.
  void Reopen(int slots = 10, const std::string& version = "1") {
    std::ofstream(state_ + "/built.so") << "\177ELF of version " << version;
    Allocator::Options options;
    options.book = &*book_;
    options.kubelet_record = &*kubelet_record_;
    options.shims = &*shims_;
    std::ofstream(state_ + "/built-nvml.so") << "\177ELF of NVML";
    std::ofstream(state_ + "/built-trace") << "\177ELF of a program";
    options.library_files = {*shims_->Install(state_ + "/built.so", version),
                             *shims_->Install(state_ + "/built-nvml.so", version),
                             *shims_->Install(state_ + "/built-trace", version)};
    options.policy = &*policy_;
    options.pod_resources = &pods_;
    options.clock = &clock_;
    for (const std::string& uuid : gpus_) {
      options.capacities[uuid] = {uuid, 140 * kGiB, 6 * kGiB, slots};
    }
    options.resource_name = "gpuloom.io/gpu";
    options.shapes = shapes_;
    options.on_use = [this](const std::string&, const SlotUse& use) {
      closed_ = use.Closed();
      if (const auto hook = std::exchange(on_use_, nullptr)) hook();
    };
    options.closed = [this](const std::string&) { return drained_; };
    options.pinned_limit_bytes = 3 * kGiB;
    options.scheduler =
        [this](const std::string& uuid) -> absl::StatusOr<std::shared_ptr<SchedulerClient>> {
      if (uuid == kOtherUuid) return std::shared_ptr<SchedulerClient>(other_scheduler_);
      if (const auto hook = std::exchange(on_scheduler_, nullptr)) hook();
      if (!scheduler_is_up_) return absl::UnavailableError("supervisor: no scheduler");
      return std::shared_ptr<SchedulerClient>(scheduler_);
    };
    options.scheduler_is_gone = [this](const std::string&) { return scheduler_is_gone_; };
    allocator_.emplace(std::move(options));
  }
  void UsePolicy(const std::string& text) {
    WritePolicy(text);
    ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  }
  // A pod of its own for each slot, started. Returns their allocations' names.
  std::vector<std::string> StartPodsOn(std::vector<int> slots, const char* pod_namespace = "a") {
    std::vector<std::string> names;
    for (const int slot : slots) {
      names.push_back(NameOf(*allocator_->Allocate(Ids({slot}))));
      Holds(pod_namespace, ("p" + std::to_string(slot)).c_str(), Ids({slot}));
      EXPECT_TRUE(allocator_->PreStart(Ids({slot})).ok());
    }
    return names;
  }
  std::vector<std::string> Ids(std::vector<int> slots) {
    std::vector<std::string> ids;
    for (const int slot : slots) ids.push_back(MakeDeviceId(kUuid, slot));
    return ids;
  }
  std::string NameOf(const ContainerSetup& setup) {
    return std::filesystem::path(setup.mounts.front().host_path).filename();
  }
  void Holds(const char* pod_namespace, const char* pod, const std::vector<std::string>& ids) {
    pods_.held.push_back({{pod_namespace, pod, "main"}, ids});
  }

  std::string state_;
  TestingClock clock_;
  std::optional<AllocationBook> book_;
  std::optional<KubeletRecord> kubelet_record_;
  std::optional<ShimStore> shims_;
  std::optional<PolicyWatcher> policy_;
  FakePodResources pods_;
  std::shared_ptr<FakeScheduler> scheduler_ = std::make_shared<FakeScheduler>();
  std::shared_ptr<FakeScheduler> other_scheduler_ = std::make_shared<FakeScheduler>();
  bool scheduler_is_up_ = true;
  bool scheduler_is_gone_ = false;
  std::function<void()> on_scheduler_;       // when it is asked for next; may be null
  std::function<void()> on_use_;             // when slots are taken next; may be null
  std::string drained_;                      // why the GPU gets no new pods
  std::vector<std::string> gpus_ = {kUuid};  // from the next Reopen on
  std::vector<int> shapes_;                  // from the next Reopen on
  std::set<int> closed_;                     // single slots, as it was said last
  std::optional<Allocator> allocator_;
};

}  // namespace gpuloom
