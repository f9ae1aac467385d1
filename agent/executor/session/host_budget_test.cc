// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/host_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gpuloom::executor {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::shared_ptr<SessionBudget> SessionOf(const std::shared_ptr<DomainBudget>& domain) {
  return std::make_shared<SessionBudget>(domain, domain->session_limit_bytes());
}

TEST(HostBudget, AChargeGivesBackAtItsEnd) {
  const auto domain = std::make_shared<DomainBudget>(4096 * kMiB);
  const auto session = SessionOf(domain);
  {
    HostCharge charge(session);
    EXPECT_TRUE(charge.Add(600 * kMiB));
    EXPECT_TRUE(charge.Add(400 * kMiB));
    EXPECT_FALSE(charge.Add(25 * kMiB)) << "beyond a quarter of its domain's";
    EXPECT_EQ(session->held_bytes(), 1000 * kMiB);
    charge.ShrinkTo(100 * kMiB);
    charge.ShrinkTo(200 * kMiB);
    EXPECT_EQ(domain->held_bytes(), 100 * kMiB);
    EXPECT_FALSE(charge.Add(UINT64_MAX));
    EXPECT_TRUE(charge.Add(0));
  }
  EXPECT_EQ(session->held_bytes(), 0u);
  EXPECT_EQ(domain->held_bytes(), 0u);
  EXPECT_EQ(domain->most_bytes(), 1000 * kMiB);
}

TEST(HostBudget, WhatIsHeldOutlivesItsSession) {
  const auto domain = std::make_shared<DomainBudget>(4096 * kMiB);
  auto charge = std::make_unique<HostCharge>(SessionOf(domain));
  EXPECT_TRUE(charge->Add(100 * kMiB));
  EXPECT_EQ(domain->held_bytes(), 100 * kMiB);
  charge.reset();
  EXPECT_EQ(domain->held_bytes(), 0u);
}

TEST(HostBudget, Malicious_NeighboursThatHoldAllLeaveEachItsPart) {
  const auto domain = std::make_shared<DomainBudget>(1024 * kMiB);
  std::vector<std::shared_ptr<SessionBudget>> hostile;
  for (int i = 0; i < 64; ++i) {
    hostile.push_back(SessionOf(domain));
    while (hostile.back()->Take(kMiB)) {
    }
  }
  EXPECT_LE(domain->held_bytes(), 1024 * kMiB + 64 * SessionBudget::kAssuredBytes);
  const auto honest = SessionOf(domain);
  EXPECT_TRUE(honest->Take(SessionBudget::kAssuredBytes));
  EXPECT_FALSE(honest->Take(1));
  for (const auto& session : hostile) session->Give(session->held_bytes());
  EXPECT_TRUE(honest->Take(kMiB));
  honest->Give(honest->held_bytes());
  EXPECT_EQ(domain->held_bytes(), 0u);
}

TEST(HostBudget, SaysWhatIsHeldAndWhatRaisesIt) {
  const auto domain = std::make_shared<DomainBudget>(4096 * kMiB);
  const auto session = SessionOf(domain);
  ASSERT_TRUE(session->Take(1000 * kMiB));
  const std::string text = session->Refusal(100 * kMiB);
  EXPECT_THAT(text, HasSubstr("takes 100 MiB"));
  EXPECT_THAT(text, HasSubstr("1000 MiB of 1024 MiB"));
  EXPECT_THAT(text, HasSubstr("--executor-memory"));
  session->Give(1000 * kMiB);
}

TEST(HostBudget, CountsOfManyThreadsAddUp) {
  const auto domain = std::make_shared<DomainBudget>(4096 * kMiB);
  const auto session = SessionOf(domain);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 1000; ++n) {
        HostCharge charge(session);
        EXPECT_TRUE(charge.Add(kMiB));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(domain->held_bytes(), 0u);
}

}  // namespace
}  // namespace gpuloom::executor
