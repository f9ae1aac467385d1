// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/executor_users.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>

namespace gpuloom::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr char kWholeMap[] = "         0          0 4294967295\n";

UserRights Root() { return {0, true, true, true, kWholeMap, kWholeMap}; }

ExecutorUsers Choose(const std::string& choice, const UserRights& rights) {
  std::string error;
  const auto users = ExecutorUsers::Choose(choice, rights, &error);
  EXPECT_TRUE(users) << error;
  return users.value_or(ExecutorUsers());
}

std::string Refusal(const std::string& choice, const UserRights& rights) {
  std::string error;
  EXPECT_FALSE(ExecutorUsers::Choose(choice, rights, &error)) << choice;
  return error;
}

TEST(ExecutorUsers, AreEachDifferentAndNobodysWhileTheirLockLives) {
  // Numbers of this process's own, should the test run twice at once.
  const unsigned first = 3'000'000'000u + static_cast<unsigned>(getpid()) * 4;
  const std::string range = std::to_string(first) + "-" + std::to_string(first + 2);
  const ExecutorUsers users = Choose(range, Root());
  ASSERT_TRUE(users.any());
  EXPECT_EQ(users.lack(), "");
  std::string error;
  ExecutorUser taken[3];
  for (ExecutorUser& user : taken) {
    ASSERT_TRUE(users.Take(&user, &error)) << error;
    EXPECT_GE(user.id, first);
    EXPECT_LE(user.id, first + 2);
  }
  EXPECT_NE(taken[0].id, taken[1].id);
  EXPECT_NE(taken[1].id, taken[2].id);
  EXPECT_NE(taken[0].id, taken[2].id);
  // A second scheduler does not get them either.
  ExecutorUser more;
  EXPECT_FALSE(Choose(range, Root()).Take(&more, &error));
  EXPECT_THAT(error, HasSubstr("name a wider range"));
  // As long as one process has the lock, whoever closes it.
  const channel::UniqueFd inherited(dup(taken[1].lock.get()));
  const uint32_t freed = taken[0].id;
  taken[0] = ExecutorUser();
  taken[1] = ExecutorUser();
  ASSERT_TRUE(users.Take(&more, &error)) << error;
  EXPECT_EQ(more.id, freed);
  EXPECT_FALSE(users.Take(&taken[0], &error));
}

TEST(ExecutorUsers, AutomaticOnesAreFarAboveEverybody) {
  const ExecutorUsers users = Choose("auto", Root());
  ExecutorUser user;
  std::string error;
  ASSERT_TRUE(users.Take(&user, &error)) << error;
  EXPECT_GE(user.id, ExecutorUsers::kFirst);
  EXPECT_LE(user.id, ExecutorUsers::kLast);
}

TEST(ExecutorUsers, WithoutTheRightsThereAreNoneAndItIsSaid) {
  UserRights somebody;
  somebody.user = 1000;
  UserRights lacking = Root();
  lacking.can_set_group = lacking.can_signal = false;
  UserRights inside = Root();
  inside.user_map = "0 100000 65536\n";
  for (const auto& [rights, reason] :
       {std::pair(somebody, "the scheduler is not root"),
        std::pair(lacking, "the scheduler lacks CAP_SETGID, CAP_KILL"),
        std::pair(inside, "does not map 2000000000-2099999999")}) {
    const ExecutorUsers users = Choose("auto", rights);
    EXPECT_FALSE(users.any());
    EXPECT_THAT(users.lack(), HasSubstr(reason));
    EXPECT_THAT(users.lack(), HasSubstr("executors run as user " + std::to_string(rights.user)));
    ExecutorUser user;
    std::string error;
    EXPECT_TRUE(users.Take(&user, &error));
    EXPECT_EQ(user.id, 0u);
    // Whoever names a range wants it.
    EXPECT_THAT(Refusal("2000000000-2099999999", rights), HasSubstr(reason));
  }
  EXPECT_TRUE(Choose("60000-60009", inside).any());
  EXPECT_FALSE(Choose("none", Root()).any());
}

TEST(ExecutorUsers, WhatIsNoRangeIsRefused) {
  for (const char* choice : {"", "all", "7", "7-", "-7", "7-8-9", "7-8x", "0x7-0x8", "7 - 8"}) {
    EXPECT_THAT(Refusal(choice, Root()), HasSubstr("auto, none, or FIRST-LAST"));
  }
  UserRights other = Root();
  other.user = 50;
  for (const auto& [choice, rights] :
       {std::pair("0-9", Root()), std::pair("9-8", Root()), std::pair("9-4294967295", Root()),
        std::pair("40-60", other)}) {
    EXPECT_THAT(Refusal(choice, rights), HasSubstr("from 1 to 4294967294"));
  }
}

}  // namespace
}  // namespace gpuloom::scheduler
