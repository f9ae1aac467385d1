// SPDX-License-Identifier: Apache-2.0
#include "agent/executor_losses.h"

#include <gtest/gtest.h>

#include "proto/control/connection.h"

namespace gpuloom {
namespace {

using std::chrono::seconds;

class ExecutorLossesTest : public ::testing::Test {
 protected:
  // A trust domain in which these namespaces have a pod each.
  void AddDomain(const char* name, const std::vector<const char*>& namespaces) {
    control::DomainState& domain = report_.domains.emplace_back();
    control::SetText(domain.name, name);
    for (const char* pod_namespace : namespaces) {
      control::AllocationState& state = report_.allocations.emplace_back();
      control::SetText(state.trust_domain, name);
      control::SetText(state.pod_namespace, pod_namespace);
    }
  }
  bool Lose(size_t domain, uint64_t executors = 1) {
    report_.domains.at(domain).executors_lost += executors;
    return Look();
  }
  bool Look() { return losses_.PointToGpu(report_, now_); }

  Clock::Time now_{seconds(1'700'000'000)};
  GpuReport report_;
  ExecutorLosses losses_;
};

TEST_F(ExecutorLossesTest, ThoseOfTwoNamespacesPointToTheGpu) {
  AddDomain("namespace/a", {"a", "a"});
  AddDomain("namespace/b", {"b"});
  EXPECT_FALSE(Look());
  EXPECT_FALSE(Lose(0));
  now_ += ExecutorLosses::kWindow - seconds(1);
  EXPECT_FALSE(Look());
  EXPECT_TRUE(Lose(1));
  EXPECT_FALSE(Look()) << "said once";
  EXPECT_FALSE(Lose(1));
  EXPECT_TRUE(Lose(0));
}

TEST_F(ExecutorLossesTest, Malicious_OneNamespacesNeverDoHoweverManyPodsItHas) {
  AddDomain("pod/a/p", {"a"});
  AddDomain("pod/a/q", {"a"});
  AddDomain("namespace/b", {"b"});
  EXPECT_FALSE(Look());
  for (int i = 0; i < 1000; ++i) {
    now_ += seconds(2);
    ASSERT_FALSE(Lose(static_cast<size_t>(i % 2), 10));
  }
}

TEST_F(ExecutorLossesTest, WhoShareATrustDomainAreOne) {
  AddDomain("name/shared", {"b", "a"});
  AddDomain("namespace/a", {"a"});
  AddDomain("namespace/c", {"c"});
  EXPECT_FALSE(Look());
  EXPECT_FALSE(Lose(0));
  EXPECT_FALSE(Lose(1)) << "who is in both may have ended both";
  EXPECT_TRUE(Lose(2));
}

TEST_F(ExecutorLossesTest, WhatIsLongAgoOrWasBeforeIsNoNews) {
  AddDomain("namespace/a", {"a"});
  AddDomain("namespace/b", {"b"});
  EXPECT_FALSE(Lose(0, 7));
  EXPECT_FALSE(Lose(1));
  now_ += ExecutorLosses::kWindow;
  EXPECT_FALSE(Lose(0));
  // A scheduler that begins anew counts anew.
  report_.domains[0].executors_lost = report_.domains[1].executors_lost = 0;
  EXPECT_FALSE(Look());
  EXPECT_TRUE(Lose(1));
}

}  // namespace
}  // namespace gpuloom
