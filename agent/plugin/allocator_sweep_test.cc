// SPDX-License-Identifier: Apache-2.0
// What becomes of an allocation whose pod is gone.
#include <gmock/gmock.h>

#include <filesystem>

#include "agent/plugin/testing/allocator_fixture.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

using std::chrono::minutes;

TEST_F(AllocatorTest, SweepEndsWhatIsOverAndKeepsOldShimsUntilThen) {
  const auto setup = allocator_->Allocate(Ids({0}));
  const std::string old_shim = setup->mounts[1].host_path;
  const std::string old_nvml = setup->mounts[3].host_path;
  ASSERT_NE(old_shim, old_nvml);
  Holds("a", "p", Ids({0}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0})).ok());
  Reopen(10, "2");
  allocator_->KubeletSeen("kubelet 1");
  clock_.Advance(minutes(10));
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  EXPECT_TRUE(fs::exists(old_shim));
  EXPECT_TRUE(fs::exists(old_nvml));
  pods_.held.clear();
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  EXPECT_TRUE(fs::exists(setup->mounts[0].host_path));
  clock_.Advance(minutes(1));
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  EXPECT_FALSE(fs::exists(setup->mounts[0].host_path));
  EXPECT_FALSE(fs::exists(old_shim));
  EXPECT_FALSE(fs::exists(old_nvml));
  EXPECT_THAT(scheduler_->added, IsEmpty());
  EXPECT_THAT(book_->All(), IsEmpty());
}

// What is charged: the kubelet does not say when it takes a slot back.
TEST_F(AllocatorTest, ASlotIsHeldOnceAndNoLongerThanItsPod) {
  allocator_->KubeletSeen("kubelet 1");
  clock_.Advance(minutes(10));
  ASSERT_TRUE(allocator_->Allocate(Ids({0, 1})).ok());
  EXPECT_THAT(allocator_->SlotsHeld(), IsEmpty());
  Holds("a", "p", Ids({0, 1}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0, 1})).ok());
  const std::string first = book_->All().front().name;
  EXPECT_THAT(allocator_->SlotsHeld(), ElementsAre(Pair(first, 2)));
  // It ends within a minute. Nothing is removed yet, and nothing held.
  pods_.held.clear();
  clock_.Advance(std::chrono::seconds(2));
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  EXPECT_THAT(allocator_->SlotsHeld(), ElementsAre(Pair(first, 0)));
  EXPECT_EQ(book_->All().size(), 1u);
  // The next one has its slots: that is proof, and the first goes at once.
  clock_.Advance(std::chrono::seconds(2));
  ASSERT_TRUE(allocator_->Allocate(Ids({0, 1})).ok());
  Holds("a", "next", Ids({0, 1}));
  ASSERT_TRUE(allocator_->PreStart(Ids({0, 1})).ok());
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  ASSERT_EQ(book_->All().size(), 1u);
  EXPECT_THAT(allocator_->SlotsHeld(), ElementsAre(Pair(book_->All().front().name, 2)));
  EXPECT_THAT(scheduler_->added, SizeIs(1));
}

TEST_F(AllocatorTest, AnAgentsStartRenewsNoGraceButAKubeletsDoes) {
  const auto setup = allocator_->Allocate(Ids({0}));
  const std::string directory = setup->mounts[0].host_path;
  allocator_->KubeletSeen("kubelet 1");
  clock_.Advance(minutes(6));
  Reopen();
  allocator_->KubeletSeen("kubelet 1");
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  clock_.Advance(std::chrono::seconds(59));
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  EXPECT_TRUE(fs::exists(directory));
  // Meanwhile the kubelet has restarted, too.
  Reopen();
  allocator_->KubeletSeen("kubelet 2");
  for (int minute = 0; minute < 5; ++minute) {
    EXPECT_THAT(allocator_->Sweep(), IsEmpty());
    clock_.Advance(minutes(1));
    Reopen();
    allocator_->KubeletSeen("kubelet 2");
  }
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  EXPECT_TRUE(fs::exists(directory));
  clock_.Advance(minutes(1));
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  EXPECT_FALSE(fs::exists(directory));
}

// As that of a GPU that was lost and is not there any more after a reboot.
TEST_F(AllocatorTest, WhatAPodLeftOnAGpuWithoutASchedulerIsForgotten) {
  allocator_->KubeletSeen("kubelet 1");
  clock_.Advance(minutes(10));
  const std::vector<std::string> names = StartPodsOn({0});
  scheduler_is_up_ = false;
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  pods_.held.clear();
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  clock_.Advance(minutes(1));
  // It runs and is silent: it may serve whoever is still there.
  EXPECT_THAT(allocator_->Sweep(),
              ElementsAre(AllOf(HasSubstr(names[0]), HasSubstr("no scheduler"))));
  EXPECT_THAT(book_->All(), SizeIs(1));
  scheduler_is_gone_ = true;
  // Its time has begun anew.
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  clock_.Advance(minutes(1));
  EXPECT_THAT(allocator_->Sweep(), IsEmpty());
  EXPECT_THAT(book_->All(), IsEmpty());
  EXPECT_EQ(allocator_->SlotUses().at(kUuid).held(), 0u);
}

TEST_F(AllocatorTest, AGpuWithoutASchedulerKeepsWhatItsPodsHold) {
  allocator_->KubeletSeen("kubelet 1");
  clock_.Advance(minutes(10));
  StartPodsOn({0});
  scheduler_is_up_ = false;
  scheduler_is_gone_ = true;
  for (int minute = 0; minute < 5; ++minute) {
    EXPECT_THAT(allocator_->Sweep(), IsEmpty());
    clock_.Advance(minutes(1));
  }
  EXPECT_THAT(book_->All(), SizeIs(1));
}

}  // namespace
}  // namespace gpuloom
