// SPDX-License-Identifier: Apache-2.0
#include "agent/handover.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "agent/node/agent_lock.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using Role = Handover::Role;

class HandoverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "handoverXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    state_ = name;
  }
  void TearDown() override { fs::remove_all(state_); }
  static Role Look(std::optional<Handover>& agent) {
    const absl::StatusOr<Role> role = agent->Look();
    EXPECT_TRUE(role.ok()) << role.status();
    return role.value_or(Role::kWaiting);
  }
  std::string state_;
  std::optional<Handover> old_, next_, third_;
};

TEST_F(HandoverTest, AloneItIsInChargeAtOnceAndStaysSo) {
  old_.emplace(state_);
  EXPECT_EQ(Look(old_), Role::kInCharge);
  EXPECT_EQ(Look(old_), Role::kInCharge);
  EXPECT_FALSE(old_->HasPredecessor());
}

TEST_F(HandoverTest, TheOldOneHandsOverAndIsMissedWhenItEnds) {
  old_.emplace(state_);
  EXPECT_EQ(Look(old_), Role::kInCharge);
  next_.emplace(state_);
  EXPECT_EQ(Look(next_), Role::kWaiting);
  EXPECT_EQ(Look(next_), Role::kWaiting) << "only the old one lets go";
  EXPECT_EQ(Look(old_), Role::kLeaving);
  EXPECT_EQ(Look(next_), Role::kInCharge);
  EXPECT_EQ(Look(old_), Role::kLeaving);
  EXPECT_TRUE(next_->HasPredecessor());
  EXPECT_FALSE(old_->HasPredecessor());
  old_.reset();
  EXPECT_FALSE(next_->HasPredecessor());
  EXPECT_EQ(Look(next_), Role::kInCharge);
}

TEST_F(HandoverTest, TheOldOneTakesOverAgainWhenTheNewOneDies) {
  old_.emplace(state_);
  EXPECT_EQ(Look(old_), Role::kInCharge);
  for (const bool was_in_charge : {true, false}) {
    next_.emplace(state_);
    EXPECT_EQ(Look(next_), Role::kWaiting);
    EXPECT_EQ(Look(old_), Role::kLeaving);
    if (was_in_charge) {
      EXPECT_EQ(Look(next_), Role::kInCharge);
    }
    next_.reset();
    EXPECT_EQ(Look(old_), Role::kInCharge);
    EXPECT_FALSE(old_->HasPredecessor());
  }
}

TEST_F(HandoverTest, WithoutAHandoverTheNextOneFollowsTheEnd) {
  old_.emplace(state_);
  EXPECT_EQ(Look(old_), Role::kInCharge);
  next_.emplace(state_);
  EXPECT_EQ(Look(next_), Role::kWaiting);
  old_.reset();  // killed
  EXPECT_EQ(Look(next_), Role::kInCharge);
  EXPECT_FALSE(next_->HasPredecessor());
}

TEST_F(HandoverTest, AThirdOneWaitsUntilTheFirstHasEnded) {
  old_.emplace(state_);
  EXPECT_EQ(Look(old_), Role::kInCharge);
  next_.emplace(state_);
  third_.emplace(state_);
  EXPECT_EQ(Look(next_), Role::kWaiting);
  EXPECT_EQ(Look(third_), Role::kWaiting);
  EXPECT_EQ(Look(old_), Role::kLeaving);
  EXPECT_EQ(Look(third_), Role::kWaiting) << "the second one waits longer";
  EXPECT_EQ(Look(next_), Role::kInCharge);
  EXPECT_EQ(Look(third_), Role::kWaiting);
  EXPECT_EQ(Look(next_), Role::kInCharge) << "it would be the third that answers";
  old_.reset();
  EXPECT_EQ(Look(next_), Role::kLeaving);
  EXPECT_EQ(Look(third_), Role::kInCharge);
}

TEST_F(HandoverTest, WhoLooksNeverMissesAnAgentMeanwhile) {
  old_.emplace(state_);
  EXPECT_EQ(Look(old_), Role::kInCharge);
  next_.emplace(state_);
  EXPECT_EQ(Look(next_), Role::kWaiting);
  EXPECT_FALSE(LacksAgent(state_));
  EXPECT_EQ(Look(old_), Role::kLeaving);
  EXPECT_FALSE(LacksAgent(state_)) << "nobody has taken over yet";
  next_.reset();  // killed
  EXPECT_FALSE(LacksAgent(state_)) << "the old one is about to take over again";
  EXPECT_EQ(Look(old_), Role::kInCharge);
  EXPECT_FALSE(LacksAgent(state_));
  old_.reset();
  EXPECT_TRUE(LacksAgent(state_));
}

TEST_F(HandoverTest, ADirectoryThatCannotBeUsedIsSaid) {
  std::ofstream(state_ + "/file") << "x";
  EXPECT_FALSE(Handover(state_ + "/file/state").Look().ok());
}

}  // namespace
}  // namespace gpuloom
