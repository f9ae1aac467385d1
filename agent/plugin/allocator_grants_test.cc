// SPDX-License-Identifier: Apache-2.0
// What is granted while something else changes: the policy, the allocations, the disk.
#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <optional>

#include "agent/plugin/testing/allocator_fixture.h"
#include "agent/testing/full_disk.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

TEST_F(AllocatorTest, AContainerThatStartsAgainGetsNoMoreThanIsLeft) {
  UsePolicy("defaults: {memory: 13GiB}");
  const std::vector<std::string> names = StartPodsOn({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  Reopen(5);
  UsePolicy("defaults: {memory: 26GiB, weight: 7}");
  EXPECT_THAT(allocator_->Regrant(), SizeIs(10));
  ASSERT_TRUE(allocator_->PreStart(Ids({7})).ok());
  const BindOrder& order = scheduler_->bound.at(names[7]);
  EXPECT_EQ(order.memory_quota_bytes, 13 * kGiB);
  EXPECT_EQ(order.shares.namespace_weight, 7u) << "all else applies";
  EXPECT_EQ(book_->Find(names[7])->binding->quota_bytes, 13 * kGiB);
  // Two of the others leave room for it.
  ASSERT_TRUE(book_->Remove(names[0]).ok());
  ASSERT_TRUE(book_->Remove(names[1]).ok());
  ASSERT_TRUE(allocator_->PreStart(Ids({7})).ok());
  EXPECT_EQ(order.memory_quota_bytes, 26 * kGiB);
  EXPECT_EQ(book_->Find(names[7])->binding->quota_bytes, 26 * kGiB);
}

TEST_F(AllocatorTest, AFreshSchedulerThatRefusesTheRenewedGrantGetsTheFormerOne) {
  const std::vector<std::string> names = StartPodsOn({0});
  // It and the agent were away when the policy changed.
  scheduler_->added.clear();
  scheduler_->bound.clear();
  UsePolicy("defaults: {memory: 5GiB}");
  scheduler_->refuses_above_bytes = kGiB;
  EXPECT_TRUE(allocator_->Restore(kUuid, scheduler_.get()).ok());
  ASSERT_TRUE(scheduler_->bound.contains(names[0]));
  EXPECT_EQ(scheduler_->bound.at(names[0]).memory_quota_bytes, kGiB);
  EXPECT_EQ(book_->Find(names[0])->binding->quota_bytes, kGiB);
}

TEST_F(AllocatorTest, AContainerStartsAgainOnAFullDisk) {
  const std::vector<std::string> names = StartPodsOn({0});
  scheduler_->bound.clear();
  const FullDisk full;
  EXPECT_TRUE(allocator_->PreStart(Ids({0})).ok());
  EXPECT_EQ(scheduler_->bound.at(names[0]).memory_quota_bytes, kGiB);
}

TEST_F(AllocatorTest, AnAllocationThatIsSweptWhileItsStartWaitsIsRefused) {
  const std::vector<std::string> names = StartPodsOn({0});
  pods_.held.clear();
  Holds("a", "other", Ids({0}));
  pods_.on_list = [&] { EXPECT_TRUE(book_->Remove(names[0]).ok()); };
  const absl::Status refused = allocator_->PreStart(Ids({0}));
  EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("no allocation is known"));
}

TEST_F(AllocatorTest, AnAllocationThatIsMadeWhileAStartWaitsIsJudgedAsNew) {
  StartPodsOn({0});
  std::string later;
  pods_.on_list = [&] {
    later = NameOf(*allocator_->Allocate(Ids({0})));
    pods_.held.clear();
    Holds("a", "later", Ids({0}));
    drained_ = "drained";
  };
  EXPECT_THAT(std::string(allocator_->PreStart(Ids({0})).message()),
              AllOf(HasSubstr("pod a/later"), HasSubstr("placed elsewhere")));
  EXPECT_FALSE(book_->Find(later)->binding.has_value());
}

TEST_F(AllocatorTest, APolicyThatChangesWhileAStartWaitsIsTheOneThatIsJudged) {
  UsePolicy("defaults: {memory: 13GiB}");
  StartPodsOn({1, 2, 3, 4, 5, 6, 7, 8, 9});
  Reopen(5);
  const auto setup = allocator_->Allocate(Ids({0}));
  ASSERT_TRUE(setup.ok());
  Holds("a", "p0", Ids({0}));
  on_scheduler_ = [&] { UsePolicy("defaults: {memory: 26GiB}"); };
  EXPECT_EQ(allocator_->PreStart(Ids({0})).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(scheduler_->bound.contains(NameOf(*setup)));
}

TEST_F(AllocatorTest, AChangeOfPolicyReachesAPodThatStartsMeanwhile) {
  const auto setup = allocator_->Allocate(Ids({0}));
  Holds("a", "p", Ids({0}));
  std::future<std::vector<std::string>> regrant;
  scheduler_->on_bind = [&] {
    UsePolicy("defaults: {memory: 5GiB}");
    regrant = std::async(std::launch::async, [this] { return allocator_->Regrant(); });
    // It must wait for the start; one that does not has its time to come to the end here.
    (void)regrant.wait_for(std::chrono::milliseconds(200));
  };
  ASSERT_TRUE(allocator_->PreStart(Ids({0})).ok());
  EXPECT_THAT(regrant.get(), IsEmpty());
  EXPECT_EQ(scheduler_->bound.at(NameOf(*setup)).memory_quota_bytes, 5 * kGiB);
  EXPECT_EQ(book_->Find(NameOf(*setup))->binding->quota_bytes, 5 * kGiB);
}

TEST_F(AllocatorTest, ASchedulerThatHangsHoldsUpNoStartOnAnotherGpu) {
  gpus_ = {kUuid, kOtherUuid};
  Reopen();
  const std::vector<std::string> other_ids = {MakeDeviceId(kOtherUuid, 0)};
  ASSERT_TRUE(allocator_->Allocate(Ids({0})).ok());
  ASSERT_TRUE(allocator_->Allocate(other_ids).ok());
  Holds("a", "p", Ids({0}));
  Holds("a", "q", other_ids);
  std::future<absl::Status> other;
  scheduler_->on_bind = [&] {
    other = std::async(std::launch::async, [&] { return allocator_->PreStart(other_ids); });
    EXPECT_EQ(other.wait_for(std::chrono::minutes(1)), std::future_status::ready);
  };
  EXPECT_TRUE(allocator_->PreStart(Ids({0})).ok());
  EXPECT_TRUE(other.get().ok());
  EXPECT_THAT(other_scheduler_->bound, SizeIs(1));
}

TEST_F(AllocatorTest, ASchedulerThatHangsKeepsNoOtherGpusPodsFromTheirGrants) {
  gpus_ = {kUuid, kOtherUuid};
  Reopen();
  const std::vector<std::string> other_ids = {MakeDeviceId(kOtherUuid, 0)};
  const auto other = allocator_->Allocate(other_ids);
  ASSERT_TRUE(other.ok());
  Holds("a", "q", other_ids);
  ASSERT_TRUE(allocator_->PreStart(other_ids).ok());
  const std::vector<std::string> names = StartPodsOn({0});
  for (FakeScheduler* const hangs : {scheduler_.get(), other_scheduler_.get()}) {
    const uint64_t wanted_bytes = hangs == scheduler_.get() ? 3 * kGiB : 4 * kGiB;
    UsePolicy("defaults: {memory: " + std::to_string(wanted_bytes / kGiB) + "GiB}");
    FakeScheduler* const answers =
        hangs == scheduler_.get() ? other_scheduler_.get() : scheduler_.get();
    std::promise<void> answered;
    answers->on_bind = [&] { answered.set_value(); };
    hangs->on_bind = [&] {
      EXPECT_EQ(answered.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
    };
    EXPECT_THAT(allocator_->Regrant(), IsEmpty());
    EXPECT_EQ(scheduler_->bound.at(names[0]).memory_quota_bytes, wanted_bytes);
    EXPECT_EQ(other_scheduler_->bound.at(NameOf(*other)).memory_quota_bytes, wanted_bytes);
  }
}

TEST_F(AllocatorTest, APolicyThatChangedWithoutAnAgentIsGrantedAsFarAsMemoryIsLeft) {
  UsePolicy("defaults: {memory: 12GiB}");
  const std::vector<std::string> names = StartPodsOn({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  Reopen(5);
  UsePolicy("defaults: {memory: 26GiB}");
  // 14 GiB are left, which is what one of them lacks.
  for (int restart = 0; restart < 2; ++restart) {
    FakeScheduler fresh;
    ASSERT_TRUE(allocator_->Restore(kUuid, &fresh).ok());
    uint64_t granted_bytes = 0;
    for (const std::string& name : names) {
      granted_bytes += fresh.bound.at(name).memory_quota_bytes;
      EXPECT_EQ(book_->Find(name)->binding->quota_bytes, fresh.bound.at(name).memory_quota_bytes);
    }
    EXPECT_EQ(granted_bytes, 134 * kGiB);
    EXPECT_EQ(allocator_->SlotUses().at(kUuid).promised_bytes(), 134 * kGiB);
  }
}

TEST_F(AllocatorTest, MemoryThatAPolicyTakesFromSomeIsThereForOthersWhoeverIsOlder) {
  UsePolicy("defaults: {memory: 13GiB}");
  const std::string first = StartPodsOn({0}, "first").front();
  clock_.Advance(std::chrono::seconds(1));
  std::vector<std::string> others = StartPodsOn({1, 2, 3, 4, 5, 6, 7, 8});
  clock_.Advance(std::chrono::seconds(1));
  const std::string last = StartPodsOn({9}, "last").front();
  Reopen(5);
  const auto granted_bytes = [](const FakeScheduler& scheduler, const std::string& name) {
    return scheduler.bound.at(name).memory_quota_bytes;
  };
  // All of 134 GiB.
  UsePolicy("defaults: {memory: 12GiB}\nnamespaces: {first: {memory: 26GiB}}");
  EXPECT_THAT(allocator_->Regrant(), IsEmpty());
  EXPECT_EQ(granted_bytes(*scheduler_, first), 26 * kGiB);
  EXPECT_EQ(granted_bytes(*scheduler_, last), 12 * kGiB);
  UsePolicy("defaults: {memory: 12GiB}\nnamespaces: {last: {memory: 26GiB}}");
  EXPECT_THAT(allocator_->Regrant(), IsEmpty());
  EXPECT_EQ(granted_bytes(*scheduler_, first), 12 * kGiB);
  EXPECT_EQ(granted_bytes(*scheduler_, last), 26 * kGiB);
  // And while no scheduler was there.
  UsePolicy("defaults: {memory: 13GiB}");
  FakeScheduler fresh;
  ASSERT_TRUE(allocator_->Restore(kUuid, &fresh).ok());
  others.insert(others.end(), {first, last});
  for (const std::string& name : others) EXPECT_EQ(granted_bytes(fresh, name), 13 * kGiB);
}

TEST_F(AllocatorTest, WhatTheDiskRefusesNoSchedulerIsTold) {
  const std::vector<std::string> names = StartPodsOn({0});
  UsePolicy("defaults: {memory: 5GiB}");
  FakeScheduler fresh;
  {
    const FullDisk full;
    EXPECT_THAT(allocator_->Regrant(),
                ElementsAre(HasSubstr("pod a/p0, container main keeps its old grant")));
    EXPECT_THAT(allocator_->FailedGrants(),
                ElementsAre(AllOf(HasSubstr("pod a/p0"), HasSubstr("free space"))));
    EXPECT_TRUE(allocator_->Restore(kUuid, &fresh).ok());
  }
  EXPECT_EQ(scheduler_->bound.at(names[0]).memory_quota_bytes, kGiB);
  EXPECT_EQ(fresh.bound.at(names[0]).memory_quota_bytes, kGiB);
  EXPECT_EQ(book_->Find(names[0])->binding->quota_bytes, kGiB);
  EXPECT_TRUE(allocator_->OwesGrants());
  EXPECT_THAT(allocator_->Regrant(), IsEmpty());
  EXPECT_EQ(scheduler_->bound.at(names[0]).memory_quota_bytes, 5 * kGiB);
  EXPECT_FALSE(allocator_->OwesGrants());
  EXPECT_THAT(allocator_->FailedGrants(), IsEmpty());
}

TEST_F(AllocatorTest, WhatASchedulerRefusesIsOwedUntilItTakesIt) {
  const std::vector<std::string> names = StartPodsOn({0, 1});
  UsePolicy("defaults: {memory: 5GiB}");
  scheduler_->refuses_above_bytes = kGiB;
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(allocator_->Regrant(), SizeIs(2));
    EXPECT_THAT(allocator_->FailedGrants(),
                UnorderedElementsAre(HasSubstr("pod a/p0, container main keeps its old grant"),
                                     HasSubstr("pod a/p1, container main keeps its old grant")));
  }
  // A pod that ends lacks nothing.
  ASSERT_TRUE(book_->Remove(names[1]).ok());
  EXPECT_THAT(allocator_->Regrant(), SizeIs(1));
  EXPECT_THAT(allocator_->FailedGrants(), SizeIs(1));
  scheduler_->refuses_above_bytes = UINT64_MAX;
  EXPECT_TRUE(allocator_->OwesGrants());
  EXPECT_THAT(allocator_->Regrant(), IsEmpty());
  EXPECT_FALSE(allocator_->OwesGrants());
  EXPECT_THAT(allocator_->FailedGrants(), IsEmpty());
  EXPECT_EQ(scheduler_->bound.at(names[0]).memory_quota_bytes, 5 * kGiB);
}

TEST_F(AllocatorTest, WhatASchedulerThatComesUpRefusesIsOwed) {
  const std::vector<std::string> names = StartPodsOn({0});
  scheduler_->bound.clear();
  scheduler_->refuse = true;
  EXPECT_TRUE(allocator_->Restore(kUuid, scheduler_.get()).ok());
  EXPECT_THAT(allocator_->FailedGrants(),
              ElementsAre(HasSubstr("pod a/p0, container main is refused its grant")));
  scheduler_->refuse = false;
  EXPECT_THAT(allocator_->Regrant(), IsEmpty());
  EXPECT_FALSE(allocator_->OwesGrants());
  EXPECT_TRUE(scheduler_->bound.contains(names[0])) << "though its record has not changed";
}

TEST_F(AllocatorTest, ARefusedGrantThatStaysRecordedIsOwedToo) {
  const std::vector<std::string> names = StartPodsOn({0});
  UsePolicy("defaults: {memory: 5GiB}");
  std::optional<FullDisk> full;
  scheduler_->on_bind = [&] { full.emplace(); };
  scheduler_->refuses_above_bytes = kGiB;
  EXPECT_THAT(allocator_->Regrant(), SizeIs(1));
  full.reset();
  EXPECT_EQ(book_->Find(names[0])->binding->quota_bytes, 5 * kGiB);
  EXPECT_THAT(allocator_->Regrant(), SizeIs(1));
  scheduler_->refuses_above_bytes = UINT64_MAX;
  EXPECT_THAT(allocator_->Regrant(), IsEmpty());
  EXPECT_EQ(scheduler_->bound.at(names[0]).memory_quota_bytes, 5 * kGiB);
  EXPECT_FALSE(allocator_->OwesGrants());
}

TEST_F(AllocatorTest, MemoryThatIsNotLeftIsOwedAndNoFailure) {
  UsePolicy("defaults: {memory: 13GiB}");
  const std::vector<std::string> names = StartPodsOn({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_FALSE(allocator_->OwesGrants());
  Reopen(5);
  UsePolicy("defaults: {memory: 26GiB}");
  EXPECT_THAT(allocator_->Regrant(), SizeIs(10));
  EXPECT_TRUE(allocator_->OwesGrants());
  EXPECT_THAT(allocator_->FailedGrants(), IsEmpty());
  ASSERT_TRUE(book_->Remove(names[0]).ok());
  ASSERT_TRUE(book_->Remove(names[1]).ok());
  EXPECT_THAT(allocator_->Regrant(), SizeIs(6)) << "two get it";
  EXPECT_TRUE(allocator_->OwesGrants());
  for (size_t i = 2; i < names.size(); ++i) ASSERT_TRUE(book_->Remove(names[i]).ok());
  EXPECT_THAT(allocator_->Regrant(), IsEmpty());
  EXPECT_FALSE(allocator_->OwesGrants());
}

TEST_F(AllocatorTest, WhatASchedulerRefusesIsInNoRecord) {
  const std::vector<std::string> names = StartPodsOn({0});
  UsePolicy("defaults: {memory: 5GiB}");
  FakeScheduler refuses;
  refuses.refuse = true;
  EXPECT_TRUE(allocator_->Restore(kUuid, &refuses).ok()) << "the others must get their GPU";
  EXPECT_EQ(book_->Find(names[0])->binding->quota_bytes, kGiB);
}

}  // namespace
}  // namespace gpuloom
