// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "agent/node/library_folder.h"
#include "agent/plugin/testing/allocator_fixture.h"
#include "agent/testing/full_disk.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

#if defined(__x86_64__)
constexpr bool kHas32BitPrograms = true;
#else
constexpr bool kHas32BitPrograms = false;
#endif

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

TEST_F(AllocatorTest, AContainerGetsTheDirectoryTheLibrariesAndNoDevice) {
  const auto setup = allocator_->Allocate(Ids({0, 1}));
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_EQ(setup->envs.at("NVIDIA_VISIBLE_DEVICES"), "void");
  EXPECT_THAT(setup->envs, Not(Contains(Key("LD_LIBRARY_PATH"))));
  ASSERT_THAT(setup->mounts, SizeIs(kHas32BitPrograms ? 18 : 16));
  EXPECT_EQ(setup->mounts[0].container_path, "/var/run/gpuloom");
  EXPECT_EQ(setup->envs.at("LD_PRELOAD"), "/usr/local/nvidia/$LIB/libcuda.so.1");
  std::map<std::string, std::string> paths;
  EXPECT_EQ(setup->mounts.back().container_path, "/usr/local/bin/gpuloom-trace");
  EXPECT_THAT(setup->mounts.back().host_path, HasSubstr("/built-trace-1-"));
  for (size_t i = 1; i + 1 < setup->mounts.size(); ++i) {
    const MountSetup& mount = setup->mounts[i];
    const std::string name = fs::path(mount.container_path).filename();
    EXPECT_THAT(name, ::testing::MatchesRegex("(libcuda|libnvidia-ml)\\.so(\\.1)?"));
    const bool is_nvml = name.starts_with("libnvidia-ml");
    EXPECT_TRUE(fs::is_regular_file(mount.host_path)) << mount.host_path;
    EXPECT_TRUE(paths.emplace(mount.container_path, mount.host_path).second);
    const bool is_32_bit = mount.host_path.ends_with("/empty-i386.so");
    if (!is_32_bit) {
      EXPECT_THAT(mount.host_path, HasSubstr(is_nvml ? "/built-nvml-1-" : "/built-1-"));
    }
  }
  // Whatever a distribution's loader makes of $LIB (tests/integration/agent_image_test.cc has loaders).
  for (const char* lib : {"lib64", "lib", "lib/" GPULOOM_LIBRARY_FOLDER}) {
    const std::string path = std::string("/usr/local/nvidia/") + lib + "/libcuda.so.1";
    EXPECT_THAT(paths[path], HasSubstr("/built-1-")) << path;
  }
  for (const char* lib : {"lib32", "lib/i386-linux-gnu"}) {
    const std::string path = std::string("/usr/local/nvidia/") + lib + "/libcuda.so.1";
    EXPECT_EQ(paths[path].ends_with("/empty-i386.so"), kHas32BitPrograms) << path;
  }
  EXPECT_EQ(scheduler_->added.at(NameOf(*setup)).second, 2);
  EXPECT_THAT(scheduler_->bound, IsEmpty());
}

TEST_F(AllocatorTest, PreStartBindsThePodWithItsGrant) {
  const auto setup = allocator_->Allocate(Ids({0, 1}));
  Holds("rich", "p", Ids({0, 1}));
  ASSERT_TRUE(allocator_->PreStart(Ids({1, 0})).ok());
  const BindOrder& order = scheduler_->bound.at(NameOf(*setup));
  EXPECT_EQ(order.pod_namespace, "rich");
  EXPECT_EQ(order.pod, "p");
  EXPECT_EQ(order.container, "main");
  EXPECT_EQ(order.trust_domain, "pod/rich/p");
  EXPECT_EQ(order.memory_quota_bytes, 4 * kGiB);
  EXPECT_EQ(order.pinned_limit_bytes, 3 * kGiB);
  EXPECT_THAT(scheduler_->prepared, ElementsAre(NameOf(*setup)));
  // The kubelet retries, and a container restarts without Allocate.
  EXPECT_TRUE(allocator_->PreStart(Ids({0, 1})).ok());
}

TEST_F(AllocatorTest, RefusalsNameTheObject) {
  EXPECT_EQ(allocator_->Allocate({MakeDeviceId(kUuid, 0), MakeDeviceId(kOtherUuid, 1)})
                .status()
                .message(),
            "no GPU has 2 free slots: 1+1 (a shape of 2 would wait for them: see slotShapes)");
  EXPECT_THAT(std::string(allocator_->Allocate({MakeDeviceId(kOtherUuid, 1)}).status().message()),
              HasSubstr(kOtherUuid));
  EXPECT_THAT(std::string(allocator_->PreStart(Ids({0})).message()),
              HasSubstr("no allocation is known"));
  ASSERT_TRUE(allocator_->Allocate(Ids({0})).ok());
  EXPECT_THAT(std::string(allocator_->PreStart(Ids({0})).message()),
              HasSubstr("no pod that holds"));
  EXPECT_THAT(scheduler_->bound, IsEmpty());

  Holds("a", "p", Ids({0}));
  scheduler_->refuse = true;
  EXPECT_EQ(allocator_->PreStart(Ids({0})).message(), "pod a/p, container main: scheduler: no");
  scheduler_is_up_ = false;
  EXPECT_THAT(std::string(allocator_->PreStart(Ids({0})).message()), HasSubstr("no scheduler"));
  EXPECT_FALSE(book_->All().front().binding.has_value());
}

TEST_F(AllocatorTest, AFullDiskRefusesWhatIsNewAndLeavesWhatRuns) {
  ASSERT_TRUE(allocator_->Allocate(Ids({0})).ok());
  Holds("a", "p", Ids({0}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0})).ok());
  ASSERT_TRUE(allocator_->Allocate(Ids({1})).ok());
  Holds("a", "q", Ids({1}));
  {
    const FullDisk full;
    EXPECT_EQ(allocator_->Allocate(Ids({2})).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(allocator_->PreStart(Ids({1})).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(allocator_->Regrant(), IsEmpty()) << "what runs keeps what it was granted";
    allocator_->KubeletSeen("another");
  }
  EXPECT_THAT(book_->All(), SizeIs(2));
  EXPECT_TRUE(allocator_->PreStart(Ids({1})).ok());
  EXPECT_TRUE(allocator_->Allocate(Ids({2})).ok());
}

TEST_F(AllocatorTest, Malicious_SlotsThatTheGpuDoesNotHaveAreRefused) {
  const auto more = allocator_->Allocate({MakeDeviceId(kUuid, 9), MakeDeviceId(kUuid, 10)});
  EXPECT_EQ(more.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(more.status().message(), HasSubstr("has 10 slots"));
  EXPECT_THAT(book_->All(), IsEmpty());
  EXPECT_TRUE(allocator_->Allocate({MakeDeviceId(kUuid, 9)}).ok());
}

// Who drains looks for records after the order: one that is written later must not become a pod's.
TEST_F(AllocatorTest, AnOrderToDrainThatComesWhileSlotsAreTakenIsSeen) {
  shapes_ = {2};
  Reopen();
  on_use_ = [this] {
    EXPECT_EQ(book_->All().size(), 1u);
    drained_ = "drained";
  };
  const auto refused = allocator_->Allocate({MakeDeviceId({kUuid, 2, 0})});
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("is drained"));
  EXPECT_THAT(book_->All(), IsEmpty());
  EXPECT_THAT(closed_, IsEmpty()) << "the slots are free again, and that is said";
  EXPECT_THAT(scheduler_->added, IsEmpty());
  drained_ = "";
  EXPECT_TRUE(allocator_->Allocate({MakeDeviceId({kUuid, 2, 0})}).ok());
}

TEST_F(AllocatorTest, IdsThatPassToAnotherPodGetAFreshDirectory) {
  const auto first = allocator_->Allocate(Ids({0}));
  Holds("a", "p", Ids({0}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0})).ok());
  pods_.held.clear();
  Holds("rich", "q", Ids({0}));
  // Without a new Allocate the directory stays the first pod's.
  EXPECT_THAT(std::string(allocator_->PreStart(Ids({0})).message()),
              HasSubstr("was allocated for pod a/p"));
  const auto second = allocator_->Allocate(Ids({0}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0})).ok());
  EXPECT_NE(NameOf(*first), NameOf(*second));
  EXPECT_EQ(scheduler_->bound.at(NameOf(*first)).pod_namespace, "a");
  EXPECT_EQ(scheduler_->bound.at(NameOf(*second)).pod_namespace, "rich");
}

TEST_F(AllocatorTest, AnInitContainersAllocationIsBoundToItsPod) {
  const auto init = allocator_->Allocate(Ids({0, 1}));
  const auto app = allocator_->Allocate(Ids({0}));
  Holds("a", "p", Ids({0}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0, 1})).ok());
  EXPECT_EQ(scheduler_->bound.at(NameOf(*init)).pod, "p");
  EXPECT_EQ(scheduler_->bound.at(NameOf(*init)).container, "");
  EXPECT_FALSE(scheduler_->bound.contains(NameOf(*app)));
  ASSERT_TRUE(allocator_->PreStart(Ids({0})).ok());
  EXPECT_EQ(scheduler_->bound.at(NameOf(*app)).container, "main");
}

TEST_F(AllocatorTest, ANewSchedulerIsToldEverythingAndNothingElse) {
  gpus_ = {kUuid, kOtherUuid};
  Reopen();
  const auto bound = allocator_->Allocate(Ids({0}));
  const auto unbound = allocator_->Allocate(Ids({1}));
  Holds("a", "p", Ids({0}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0})).ok());
  FakeScheduler fresh;
  fresh.added["0123"] = {"/gone", 1};
  ASSERT_TRUE(allocator_->Restore(kUuid, &fresh).ok());
  std::vector<std::string> names = *fresh.ListAllocations();
  EXPECT_THAT(names, UnorderedElementsAre(NameOf(*bound), NameOf(*unbound)));
  EXPECT_EQ(fresh.bound.at(NameOf(*bound)).pod, "p");
  EXPECT_THAT(fresh.bound, SizeIs(1));
  // Remembered is not running: whoever attaches has its executor started.
  EXPECT_THAT(fresh.prepared, IsEmpty());
  FakeScheduler of_other_gpu;
  ASSERT_TRUE(allocator_->Restore(kOtherUuid, &of_other_gpu).ok());
  EXPECT_THAT(of_other_gpu.added, IsEmpty());
}

TEST_F(AllocatorTest, WhoseRecordCannotBeReadKeepsItsGpu) {
  const auto setup = allocator_->Allocate(Ids({0}));
  Holds("a", "p", Ids({0}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0})).ok());
  const std::string name = NameOf(*setup);
  const std::string record = state_ + "/records/" + name + ".yaml";
  fs::rename(record, record + ".there");
  fs::create_symlink(record, record);
  std::vector<std::string> complaints;
  ASSERT_TRUE(book_.emplace(state_).Load(&complaints).ok());
  ASSERT_TRUE(allocator_->Restore(kUuid, scheduler_.get()).ok());
  EXPECT_TRUE(scheduler_->added.contains(name));
  EXPECT_THAT(allocator_->Sweep(), ElementsAre(HasSubstr(name)));
  fs::rename(record + ".there", record);
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  EXPECT_THAT(book_->All(), SizeIs(1));
}

TEST_F(AllocatorTest, AllocateDoesNotNeedTheScheduler) {
  scheduler_is_up_ = false;
  const auto setup = allocator_->Allocate(Ids({0}));
  ASSERT_TRUE(setup.ok());
  scheduler_is_up_ = true;
  Holds("a", "p", Ids({0}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0})).ok());
  EXPECT_TRUE(scheduler_->added.contains(NameOf(*setup)));
}

TEST_F(AllocatorTest, AChangeOfPolicyReachesRunningPods) {
  const auto setup = allocator_->Allocate(Ids({0, 1}));
  Holds("a", "p", Ids({0, 1}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0, 1})).ok());
  EXPECT_EQ(scheduler_->bound.at(NameOf(*setup)).memory_quota_bytes, 2 * kGiB);
  WritePolicy("defaults: {memory: 5GiB}");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  EXPECT_THAT(allocator_->Regrant(), IsEmpty());
  EXPECT_THAT(scheduler_->prepared, SizeIs(1));
  EXPECT_EQ(scheduler_->bound.at(NameOf(*setup)).memory_quota_bytes, 10 * kGiB);
  EXPECT_EQ(book_->All().front().binding->quota_bytes, 10 * kGiB);

  WritePolicy("defaults: {memory: 6GiB}");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  scheduler_->refuse = true;
  EXPECT_THAT(allocator_->Regrant(),
              ElementsAre(HasSubstr("pod a/p, container main keeps its old grant")));
  EXPECT_EQ(book_->All().front().binding->quota_bytes, 10 * kGiB);
}

// Each with one slot, of the number's own.
TEST_F(AllocatorTest, WhatRunsKeepsItsMemoryWhenSlotsBecomeFewer) {
  WritePolicy("defaults: {memory: auto}");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  std::vector<std::string> names;
  for (int slot = 0; slot < 10; ++slot) {
    names.push_back(NameOf(*allocator_->Allocate(Ids({slot}))));
    Holds("a", ("p" + std::to_string(slot)).c_str(), Ids({slot}));
    ASSERT_TRUE(allocator_->PreStart(Ids({slot})).ok());
  }
  const uint64_t tenth = scheduler_->bound.at(names[0]).memory_quota_bytes;
  EXPECT_EQ(tenth, 134 * kGiB / 10 / (2 << 20) * (2 << 20));

  Reopen(5);
  for (int restart = 0; restart < 2; ++restart) {
    FakeScheduler fresh;
    ASSERT_TRUE(allocator_->Restore(kUuid, &fresh).ok());
    for (const std::string& name : names) {
      EXPECT_EQ(fresh.bound.at(name).memory_quota_bytes, tenth) << name;
    }
    EXPECT_THAT(allocator_->Regrant(), IsEmpty());
    EXPECT_EQ(allocator_->SlotUses().at(kUuid).promised_bytes(), 10 * tenth);
    EXPECT_EQ(allocator_->SlotUses().at(kUuid).beyond(), 5u);
    Reopen(5);
  }
  // A container that starts again is not new.
  EXPECT_TRUE(allocator_->PreStart(Ids({7})).ok());

  // A slot is twice as large now, and one of the old ones does not leave room for it.
  pods_.held.erase(pods_.held.begin());
  ASSERT_TRUE(book_->Remove(names[0]).ok());
  const auto early = allocator_->Allocate(Ids({0}));
  ASSERT_TRUE(early.ok());
  Holds("a", "new", Ids({0}));
  const absl::Status refused = allocator_->PreStart(Ids({0}));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("memory: pod a/new, container main"), HasSubstr("promised to nobody"),
                    HasSubstr("more is free when they end")));
  // Two of them do.
  pods_.held.erase(pods_.held.begin());
  ASSERT_TRUE(book_->Remove(names[1]).ok());
  ASSERT_TRUE(allocator_->PreStart(Ids({0})).ok());
  EXPECT_EQ(scheduler_->bound.at(NameOf(*early)).memory_quota_bytes,
            134 * kGiB / 5 / (2 << 20) * (2 << 20));
  EXPECT_LE(allocator_->SlotUses().at(kUuid).promised_bytes(), 134 * kGiB);
}

TEST_F(AllocatorTest, WhatRunsKeepsItsMemoryWhenSlotsBecomeMore) {
  WritePolicy("defaults: {memory: auto}");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  Reopen(2);
  const auto setup = allocator_->Allocate(Ids({0, 1}));
  Holds("a", "p", Ids({0, 1}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0, 1})).ok());
  Reopen(10);
  FakeScheduler fresh;
  ASSERT_TRUE(allocator_->Restore(kUuid, &fresh).ok());
  EXPECT_EQ(fresh.bound.at(NameOf(*setup)).memory_quota_bytes, 134 * kGiB);
  EXPECT_THAT(allocator_->SlotUses().at(kUuid).withheld(), SizeIs(8));
  // Whatever a kubelet does.
  ASSERT_TRUE(allocator_->Allocate(Ids({2})).ok());
  Holds("a", "q", Ids({2}));
  EXPECT_EQ(allocator_->PreStart(Ids({2})).code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(AllocatorTest, APolicyThatGivesMoreThanIsLeftLeavesWhatWasPromised) {
  WritePolicy("defaults: {memory: 13GiB}");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  std::vector<std::string> names;
  for (int slot = 0; slot < 10; ++slot) {
    names.push_back(NameOf(*allocator_->Allocate(Ids({slot}))));
    Holds("a", ("p" + std::to_string(slot)).c_str(), Ids({slot}));
    ASSERT_TRUE(allocator_->PreStart(Ids({slot})).ok());
  }
  Reopen(5);
  WritePolicy("defaults: {memory: 26GiB}");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  EXPECT_THAT(
      allocator_->Regrant(),
      ::testing::AllOf(SizeIs(10), ::testing::Each(HasSubstr("keeps its 13GiB of memory"))));
  for (const std::string& name : names) {
    EXPECT_EQ(scheduler_->bound.at(name).memory_quota_bytes, 13 * kGiB);
  }
  WritePolicy("defaults: {memory: 26GiB}\novercommit: true\n");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  EXPECT_THAT(allocator_->Regrant(), IsEmpty());
  EXPECT_EQ(scheduler_->bound.at(names[9]).memory_quota_bytes, 26 * kGiB);
}

TEST_F(AllocatorTest, SharesOfTimeMemoryWaitAndTracesReachRunningPodsToo) {
  const auto setup = allocator_->Allocate(Ids({0}));
  Holds("a", "p", Ids({0}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0})).ok());
  const BindOrder& order = scheduler_->bound.at(NameOf(*setup));
  EXPECT_EQ(order.shares, (control::ShareTerms{100, 100, 2, 0, 0}));
  EXPECT_EQ(order.memory_wait_ms, 0u);
  const std::string memory = "defaults: {memory: 1GiB";
  for (const auto& [rule, shares, wait_ms] :
       {std::tuple(", weight: 300}", control::ShareTerms{300, 100, 2, 0, 0}, 0u),
        std::tuple(", priority: low}", control::ShareTerms{100, 100, 3, 0, 0}, 0u),
        std::tuple(", timeShareMax: 30%}", control::ShareTerms{100, 100, 2, 300, 0}, 0u),
        std::tuple(", memoryWait: 5m}", control::ShareTerms{100, 100, 2, 0, 0}, 300'000u)}) {
    WritePolicy(memory + rule);
    ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
    EXPECT_THAT(allocator_->Regrant(), IsEmpty());
    EXPECT_EQ(order.shares, shares) << rule;
    EXPECT_EQ(order.memory_wait_ms, wait_ms) << rule;
  }
  EXPECT_EQ(order.kernels, control::KernelTerms{});
  EXPECT_EQ(order.partition, control::PartitionTerms{});
  EXPECT_EQ(order.rescue_after_ms, 100u);
  WritePolicy(memory +
              ", memoryWait: 5m, maxKernelTime: {warn: 10s, end: 1m}, smPercent: 50%, "
              "smReserved: 25%, trace: own, rescueAfter: never}");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  EXPECT_THAT(allocator_->Regrant(), IsEmpty());
  EXPECT_EQ(order.kernels, (control::KernelTerms{10'000, 60'000}));
  EXPECT_EQ(order.partition, (control::PartitionTerms{50, 25, 0, 0}));
  EXPECT_EQ(order.rescue_after_ms, control::kNeverRescued);
  // What is in force is remembered for the time when no policy is.
  std::ofstream(state_ + "/policy.yaml") << "defaults: {memroy: 1GiB}\n";
  policy_.emplace(state_ + "/policy.yaml");
  ASSERT_EQ(policy_->LoadFirst().outcome, PolicyWatcher::Outcome::kRefused);
  std::vector<std::string> complaints;
  book_.emplace(state_);
  ASSERT_TRUE(book_->Load(&complaints).ok());
  FakeScheduler fresh;
  ASSERT_TRUE(allocator_->Restore(kUuid, &fresh).ok());
  EXPECT_EQ(fresh.bound.at(NameOf(*setup)).memory_wait_ms, 300'000u);
  EXPECT_EQ(fresh.bound.at(NameOf(*setup)).kernels, (control::KernelTerms{10'000, 60'000}));
  EXPECT_EQ(fresh.bound.at(NameOf(*setup)).shares, (control::ShareTerms{100, 100, 2, 0, 0}));
  EXPECT_EQ(fresh.bound.at(NameOf(*setup)).trace, control::TraceTerms::kOwn);
  EXPECT_EQ(fresh.bound.at(NameOf(*setup)).rescue_after_ms, control::kNeverRescued);
}

TEST_F(AllocatorTest, WithoutAPolicyNothingStartsAndWhatRunsKeepsItsGrant) {
  const auto running = allocator_->Allocate(Ids({0}));
  Holds("rich", "p", Ids({0}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0})).ok());
  WritePolicy("defaults: {memroy: 1GiB}\n");
  policy_.emplace(state_ + "/policy.yaml");
  ASSERT_EQ(policy_->LoadFirst().outcome, PolicyWatcher::Outcome::kRefused);
  ASSERT_TRUE(allocator_->Allocate(Ids({1})).ok());
  Holds("a", "q", Ids({1}));
  EXPECT_THAT(std::string(allocator_->PreStart(Ids({1})).message()),
              AllOf(HasSubstr("policy: pod a/q, container main: "),
                    HasSubstr("did you mean memory?"), HasSubstr("no policy is in force")));
  EXPECT_THAT(allocator_->Regrant(), IsEmpty());
  FakeScheduler fresh;
  ASSERT_TRUE(allocator_->Restore(kUuid, &fresh).ok());
  EXPECT_EQ(fresh.bound.at(NameOf(*running)).memory_quota_bytes, 2 * kGiB);
  EXPECT_EQ(fresh.bound.at(NameOf(*running)).trust_domain, "pod/rich/p");
  WritePolicy("{}");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  EXPECT_TRUE(allocator_->PreStart(Ids({1})).ok());
}

TEST_F(AllocatorTest, WhatThePolicyForbidsDoesNotStart) {
  WritePolicy("namespaces:\n  no: {deny: true}\n  elsewhere: {gpus: [1]}\n");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  ASSERT_TRUE(allocator_->Allocate(Ids({0})).ok());
  Holds("no", "p", Ids({0}));
  EXPECT_THAT(std::string(allocator_->PreStart(Ids({0})).message()),
              AllOf(HasSubstr("policy: pod no/p, container main: "),
                    HasSubstr("policy.yaml:2:14: namespaces.no.deny: namespace no may not use")));
  ASSERT_TRUE(allocator_->Allocate(Ids({1})).ok());
  Holds("elsewhere", "q", Ids({1}));
  EXPECT_THAT(std::string(allocator_->PreStart(Ids({1})).message()),
              AllOf(HasSubstr("policy.yaml:3:21: namespaces.elsewhere.gpus: "), HasSubstr(kUuid)));
  EXPECT_THAT(scheduler_->bound, IsEmpty());
  WritePolicy("namespaces: {elsewhere: {gpus: [GPU-aaaa*]}}");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  EXPECT_TRUE(allocator_->PreStart(Ids({0})).ok()) << "the kubelet tries again";
  EXPECT_TRUE(allocator_->PreStart(Ids({1})).ok());
}

TEST_F(AllocatorTest, WhoseRuleIsImpossibleOnTheGpuDoesNotStartAndOthersDo) {
  WritePolicy("defaults: {memory: 20GiB}\nnamespaces:\n  small: {memory: 1GiB}\n");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  ASSERT_TRUE(allocator_->Allocate(Ids({0})).ok());
  Holds("big", "p", Ids({0}));
  const absl::Status refused = allocator_->PreStart(Ids({0}));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(refused.message()),
      AllOf(HasSubstr("policy: pod big/p, container main: "),
            HasSubstr("policy.yaml:1:20: defaults.memory: 10 slots x 20GiB is more than GPU "),
            HasSubstr(kUuid), HasSubstr("write at most")));
  EXPECT_THAT(scheduler_->bound, IsEmpty());
  EXPECT_THAT(closed_, IsEmpty()) << "every slot can be a small one";
  ASSERT_TRUE(allocator_->Allocate(Ids({1})).ok());
  Holds("small", "q", Ids({1}));
  EXPECT_TRUE(allocator_->PreStart(Ids({1})).ok());
  WritePolicy("defaults: {memory: 12GiB}");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  EXPECT_TRUE(allocator_->PreStart(Ids({0})).ok()) << "the kubelet tries again";
}

TEST_F(AllocatorTest, WhoRunsKeepsItsMemoryWhenItsRuleBecomesImpossible) {
  const auto running = allocator_->Allocate(Ids({0, 1}));
  Holds("a", "p", Ids({0, 1}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0, 1})).ok());
  WritePolicy("defaults: {memory: 20GiB, weight: 7}\n");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  EXPECT_THAT(allocator_->Regrant(),
              ElementsAre(AllOf(HasSubstr("pod a/p, container main keeps its 2GiB of memory"),
                                HasSubstr("policy.yaml:1:20: defaults.memory: "))));
  EXPECT_FALSE(allocator_->OwesGrants()) << "it needs another policy";
  const BindOrder& order = scheduler_->bound.at(NameOf(*running));
  EXPECT_EQ(order.memory_quota_bytes, 2 * kGiB);
  EXPECT_EQ(order.shares.namespace_weight, 7u) << "all else applies";
  FakeScheduler fresh;
  ASSERT_TRUE(allocator_->Restore(kUuid, &fresh).ok());
  EXPECT_EQ(fresh.bound.at(NameOf(*running)).memory_quota_bytes, 2 * kGiB);
  // As with every refusal, a container that starts again is judged again.
  EXPECT_FALSE(allocator_->PreStart(Ids({0, 1})).ok());
}

TEST_F(AllocatorTest, MaxTenantsCountsWhatTheKubeletShowsAndWasAdmitted) {
  WritePolicy("namespaces: {two: {maxTenants: 2}}");
  ASSERT_EQ(policy_->Reload().outcome, PolicyWatcher::Outcome::kReloaded);
  // One GPU's slots: an init container and the container that takes over its ID are one tenant.
  for (const auto& slots : {std::vector<int>{0, 1}, {0}, {2}, {3}, {4}, {5}}) {
    ASSERT_TRUE(allocator_->Allocate(Ids(slots)).ok());
  }
  Holds("two", "a", Ids({0}));
  Holds("two", "b", Ids({2}));
  Holds("two", "c", Ids({3}));
  Holds("other", "d", Ids({4}));
  EXPECT_TRUE(allocator_->PreStart(Ids({0, 1})).ok());
  EXPECT_TRUE(allocator_->PreStart(Ids({0})).ok());
  // c holds its slot, too, but has not been admitted.
  EXPECT_TRUE(allocator_->PreStart(Ids({2})).ok());
  EXPECT_THAT(std::string(allocator_->PreStart(Ids({3})).message()),
              AllOf(HasSubstr("namespaces.two.maxTenants: namespace two has 2 containers on GPU"),
                    HasSubstr("pod two/c, container main")));
  EXPECT_TRUE(allocator_->PreStart(Ids({4})).ok()) << "another namespace";
  EXPECT_TRUE(allocator_->PreStart(Ids({2})).ok()) << "a container that starts again";
  // a has ended: its place is free before its allocation is swept.
  pods_.held.erase(pods_.held.begin());
  EXPECT_TRUE(allocator_->PreStart(Ids({3})).ok());
}

TEST_F(AllocatorTest, TakeBackLeavesNothing) {
  const auto setup = allocator_->Allocate(Ids({0}));
  allocator_->TakeBack(*setup);
  EXPECT_THAT(book_->All(), IsEmpty());
  EXPECT_THAT(scheduler_->added, IsEmpty());
  EXPECT_FALSE(fs::exists(setup->mounts[0].host_path));
}

TEST_F(AllocatorTest, SlotsThatAreFreeAgainAreSaidToBe) {
  shapes_ = {2};
  Reopen();
  const auto taken = allocator_->Allocate({MakeDeviceId({kUuid, 2, 0})});
  EXPECT_THAT(closed_, Not(IsEmpty()));
  allocator_->TakeBack(*taken);
  EXPECT_THAT(closed_, IsEmpty());
  // A pod that is gone without a start.
  ASSERT_TRUE(allocator_->Allocate({MakeDeviceId({kUuid, 2, 0})}).ok());
  EXPECT_THAT(closed_, Not(IsEmpty()));
  allocator_->KubeletSeen("kubelet 1");
  for (int look = 0; look < 3; ++look) {
    clock_.Advance(std::chrono::minutes(10));
    EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  }
  EXPECT_THAT(book_->All(), IsEmpty());
  EXPECT_THAT(closed_, IsEmpty());
}

}  // namespace
}  // namespace gpuloom
