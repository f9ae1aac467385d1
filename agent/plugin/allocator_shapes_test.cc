// SPDX-License-Identifier: Apache-2.0
// Slots that single ones and shapes both ask for; with a kubelet: tests/integration/agent_shapes_test.cc.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <random>

#include "agent/plugin/testing/allocator_fixture.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(AllocatorTest, AShapeIsSoManySlotsOfOneGpu) {
  const std::vector<std::string> id = {MakeDeviceId({kUuid, 4, 1})};
  const auto setup = allocator_->Allocate(id);
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_EQ(scheduler_->added.at(NameOf(*setup)).second, 4);
  EXPECT_THAT(closed_, ElementsAre(6, 7, 8, 9)) << "at once, not at the next look";
  Holds("rich", "p", id);
  ASSERT_TRUE(allocator_->PreStart(id).ok());
  EXPECT_EQ(scheduler_->bound.at(NameOf(*setup)).memory_quota_bytes, 8 * kGiB);
  // The successor of its pod gets the same device, before this agent knows that the pod has ended.
  const auto second = allocator_->Allocate(id);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(closed_, ElementsAre(6, 7, 8, 9));
  // Another agent, or this one after a restart, knows the same.
  std::vector<std::string> complaints;
  book_.emplace(state_);
  ASSERT_TRUE(book_->Load(&complaints).ok());
  Reopen();
  EXPECT_THAT(allocator_->SlotUses().at(kUuid).Closed(), ElementsAre(6, 7, 8, 9));
  EXPECT_TRUE(allocator_->PreStart(id).ok());
}

// As of a disk's error while an agent begins: the container of that record runs.
TEST_F(AllocatorTest, WhileARecordCannotBeReadNobodyIsGivenWhatItHolds) {
  shapes_ = {4};
  Reopen();
  const std::vector<std::string> first = {MakeDeviceId({kUuid, 4, 0})};
  const std::string name = NameOf(*allocator_->Allocate(first));
  Holds("a", "p", first);
  ASSERT_TRUE(allocator_->PreStart(first).ok());
  const std::string record = state_ + "/records/" + name + ".yaml";
  std::filesystem::rename(record, record + ".there");
  std::filesystem::create_symlink(record, record);
  std::vector<std::string> complaints;
  book_.emplace(state_);
  ASSERT_TRUE(book_->Load(&complaints).ok());
  Reopen();
  for (const std::vector<std::string>& ids : {Ids({9}), {MakeDeviceId({kUuid, 4, 1})}}) {
    const absl::Status refused = allocator_->Allocate(ids).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(name));
  }
  // Its container starts again: whoever runs it is not told to delete the pod.
  const absl::Status again = allocator_->PreStart(first);
  EXPECT_EQ(again.code(), absl::StatusCode::kUnavailable) << again;
  EXPECT_THAT(std::string(again.message()), HasSubstr(name));
  // Without shapes the kubelet knows who holds which slot, but not what was promised.
  shapes_.clear();
  Reopen();
  ASSERT_TRUE(allocator_->Allocate(Ids({0})).ok());
  Holds("a", "q", Ids({0}));
  EXPECT_EQ(allocator_->PreStart(Ids({0})).code(), absl::StatusCode::kUnavailable);
  std::filesystem::rename(record + ".there", record);
  EXPECT_TRUE(allocator_->PreStart(Ids({0})).ok());
  EXPECT_TRUE(allocator_->PreStart(first).ok());
}

TEST_F(AllocatorTest, NoSlotIsGivenAsASingleOneAndInAShape) {
  ASSERT_TRUE(allocator_->Allocate({MakeDeviceId({kUuid, 4, 0})}).ok());
  const auto single = allocator_->Allocate(Ids({5, 6}));
  EXPECT_EQ(single.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(single.status().message()),
              AllOf(HasSubstr(MakeDeviceId(kUuid, 6)), HasSubstr(MakeDeviceId({kUuid, 4, 0}))));
  ASSERT_TRUE(allocator_->Allocate(Ids({0, 1, 2})).ok());
  const auto shape = allocator_->Allocate({MakeDeviceId({kUuid, 4, 1})});
  EXPECT_EQ(shape.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(shape.status().message()),
              HasSubstr("has 3 free slots, fewer than gpuloom.io/gpu-x4 is"));
  EXPECT_TRUE(allocator_->Allocate({MakeDeviceId({kUuid, 2, 0})}).ok());
  EXPECT_THAT(book_->All(), SizeIs(3));
  // What a shape has is not preferred, although the kubelet believes that it is free.
  const auto preferred = allocator_->Prefer(Ids({3, 4, 5, 6, 7, 8, 9}), {}, 1);
  EXPECT_THAT(*preferred, ElementsAre(MakeDeviceId(kUuid, 3)));
  EXPECT_THAT(std::string(allocator_->Prefer(Ids({3, 4, 5, 6, 7, 8, 9}), {}, 2).status().message()),
              HasSubstr("no GPU has 2 free slots: 1"));
}

// What whoever runs the pod reads in its events.
TEST_F(AllocatorTest, WhatFitsOnNoGpuIsToldWhatWouldWaitInstead) {
  const std::vector<std::string> spread = {MakeDeviceId(kUuid, 0), MakeDeviceId(kOtherUuid, 0),
                                           MakeDeviceId(kOtherUuid, 1)};
  const auto refused = [&](int size) {
    return std::string(allocator_->Prefer(spread, {}, size).status().message());
  };
  EXPECT_EQ(refused(3),
            "no GPU has 3 free slots: 2+1 (a shape of 3 would wait for them: see slotShapes)");
  EXPECT_EQ(refused(11), "no GPU has 11 free slots: 2+1") << "nothing is there to wait for";
  shapes_ = {2, 3};
  Reopen();
  EXPECT_EQ(refused(3), "no GPU has 3 free slots: 2+1 (gpuloom.io/gpu-x3: 1 would wait for them)");
  // A kubelet that asks nobody which.
  EXPECT_EQ(allocator_->Allocate(spread).status().message(), refused(3));
  EXPECT_EQ(allocator_->Allocate(spread).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(AllocatorTest, AContainerHasOneDeviceOfAShape) {
  const std::vector<std::string> ids = {MakeDeviceId({kUuid, 2, 0}), MakeDeviceId({kUuid, 2, 1})};
  for (const absl::Status& status :
       {allocator_->Allocate(ids).status(), allocator_->Prefer(ids, {}, 2).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("asks for gpuloom.io/gpu-x2: 2"));
  }
  EXPECT_THAT(
      std::string(
          allocator_->Allocate({ids[0], MakeDeviceId({kOtherUuid, 2, 0})}).status().message()),
      HasSubstr("asks for gpuloom.io/gpu-x2: 2"));
  EXPECT_THAT(*allocator_->Prefer(ids, {}, 1), ElementsAre(ids[0]));
  EXPECT_EQ(allocator_->Allocate({ids[0], MakeDeviceId(kUuid, 0)}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Pods come and go, the kubelet's view is old, and which ended pods the agent has noticed is left to chance.
TEST_F(AllocatorTest, WhateverIsAskedForNoSlotHasTwoHolders) {
  struct Pod {
    std::vector<std::string> ids;
    std::vector<int> slots;
    std::string name;
  };
  std::mt19937 random(7);
  const auto pick = [&](size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(random);
  };
  std::vector<Pod> running;
  std::vector<Pod> ended;
  std::optional<SlotUse> view = allocator_->SlotUses().at(kUuid);
  std::map<int, int> given;  // by shape
  int refused = 0;
  for (int step = 0; step < 2000; ++step) {
    clock_.Advance(std::chrono::seconds(1));
    if (pick(6) == 0) view.emplace(allocator_->SlotUses().at(kUuid));
    if (!running.empty() && pick(3) == 0) {
      const size_t which = pick(running.size());
      ended.push_back(running[which]);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(which));
    }
    if (!ended.empty() && pick(3) == 0) {
      const size_t which = pick(ended.size());
      ASSERT_TRUE(book_->Remove(ended[which].name).ok());
      ended.erase(ended.begin() + static_cast<std::ptrdiff_t>(which));
    }
    const int shape = std::array{1, 2, 4}[pick(3)];
    // As a kubelet: healthy devices of this resource that none of its pods has.
    std::vector<std::string> free;
    const std::set<int> closed = view->Closed();
    const std::set<int> places = shape == 1 ? std::set<int>() : view->Places(shape);
    for (int number = 0; number < 10 / shape; ++number) {
      const std::string id = MakeDeviceId({kUuid, shape, number});
      const bool is_healthy = shape == 1 ? !closed.contains(number) : places.contains(number);
      const bool is_used = std::ranges::any_of(
          running, [&](const Pod& pod) { return std::ranges::find(pod.ids, id) != pod.ids.end(); });
      if (is_healthy && !is_used) free.push_back(id);
    }
    if (free.empty()) continue;
    std::ranges::shuffle(free, random);
    if (shape != 1) free.resize(1);
    if (free.size() > 3) free.resize(1 + pick(3));
    const auto setup = allocator_->Allocate(free);
    if (!setup.ok()) {
      EXPECT_EQ(setup.status().code(), absl::StatusCode::kFailedPrecondition) << setup.status();
      ++refused;
      continue;
    }
    const std::string name = NameOf(*setup);
    const Pod pod = {free, SlotsOf(*book_->Find(name)), name};
    ASSERT_EQ(pod.slots.size(), free.size() * static_cast<size_t>(shape));
    for (const Pod& other : running) {
      for (const int slot : other.slots) {
        ASSERT_EQ(std::ranges::count(pod.slots, slot), 0)
            << "slot " << slot << " of " << other.ids[0] << " was given to " << pod.ids[0]
            << ", too, in step " << step;
      }
    }
    ++given[shape];
    running.push_back(pod);
  }
  for (const int shape : {1, 2, 4}) EXPECT_GT(given[shape], 10) << shape;
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace gpuloom
