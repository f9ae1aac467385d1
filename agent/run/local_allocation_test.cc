// SPDX-License-Identifier: Apache-2.0
#include "agent/run/local_allocation.h"

#include <gtest/gtest.h>

namespace gpuloom::run {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

CommandLine Line() {
  CommandLine line;
  line.slots = 2;
  line.domain = "mine";
  line.command = {"/usr/bin/python3", "train.py"};
  return line;
}

TEST(LocalAllocation, SaysWhoTheTenantIs) {
  LocalAllocation allocation;
  std::string error;
  ASSERT_TRUE(Describe(Line(), "n1", "/state/n1", 81 * kGiB, &allocation, &error)) << error;
  EXPECT_STREQ(allocation.add.name, "n1");
  EXPECT_STREQ(allocation.add.directory, "/state/n1");
  EXPECT_EQ(allocation.add.slots, 2u);
  EXPECT_EQ(allocation.add.ends_with_connection, 1u);
  EXPECT_STREQ(allocation.bind.name, "n1");
  EXPECT_STREQ(allocation.bind.pod_namespace, "local");
  EXPECT_STREQ(allocation.bind.pod, "n1");
  EXPECT_STREQ(allocation.bind.pod_uid, "n1");
  EXPECT_STREQ(allocation.bind.container, "python3");
  EXPECT_STREQ(allocation.bind.trust_domain, "mine");
  EXPECT_EQ(allocation.bind.pinned_limit_bytes, 16 * kGiB);
  EXPECT_EQ(allocation.bind.shares, control::ShareTerms{}) << "not said";
  EXPECT_EQ(allocation.bind.memory_wait_ms, 0u);
  EXPECT_EQ(allocation.bind.trace, 0u) << "not allowed unless it is said";
}

TEST(LocalAllocation, SaysWhatItMayHaveOfTheTime) {
  CommandLine line = Line();
  line.weight = 300;
  line.priority = 1;
  line.time_percent = 25;
  line.sm_percent = 50;
  line.sm_reserved = 10;
  line.memory_wait = std::chrono::seconds(30);
  line.traces = true;
  LocalAllocation allocation;
  std::string error;
  ASSERT_TRUE(Describe(line, "n", "/n", 81 * kGiB, &allocation, &error)) << error;
  EXPECT_EQ(allocation.bind.shares, (control::ShareTerms{0, 300, 1, 0, 250}));
  EXPECT_EQ(allocation.bind.memory_wait_ms, 30'000u);
  EXPECT_EQ(allocation.bind.trace, static_cast<uint32_t>(control::TraceTerms::kOwn));
  EXPECT_EQ(allocation.bind.partition, (control::PartitionTerms{0, 0, 50, 10}));
}

TEST(LocalAllocation, SlotsShareWhatTheContextsLeave) {
  LocalAllocation allocation;
  std::string error;
  ASSERT_TRUE(Describe(Line(), "n", "/n", 81 * kGiB, &allocation, &error)) << error;
  EXPECT_EQ(allocation.bind.memory_quota_bytes, 16 * kGiB);
  // Of a small GPU an eighth is kept.
  ASSERT_TRUE(Describe(Line(), "n", "/n", 800 * kMiB, &allocation, &error)) << error;
  EXPECT_EQ(allocation.bind.memory_quota_bytes, 140 * kMiB);
}

TEST(LocalAllocation, MemoryMayBeAllOfTheGpuAndNoMore) {
  CommandLine line = Line();
  LocalAllocation allocation;
  std::string error;
  line.memory_bytes = 800 * kMiB;
  ASSERT_TRUE(Describe(line, "n", "/n", 800 * kMiB, &allocation, &error)) << error;
  EXPECT_EQ(allocation.bind.memory_quota_bytes, 800 * kMiB);
  line.memory_bytes = 801 * kMiB;
  EXPECT_FALSE(Describe(line, "n", "/n", 800 * kMiB, &allocation, &error));
  EXPECT_EQ(error, "--memory asks for 801 MiB, but the GPU has 800 MiB");
}

TEST(LocalAllocation, APathThatDoesNotFitIsRefusedNotCut) {
  LocalAllocation allocation;
  std::string error;
  const std::string fits(sizeof(allocation.add.directory) - 1, 'x');
  EXPECT_TRUE(Describe(Line(), "n", fits, kGiB, &allocation, &error)) << error;
  EXPECT_FALSE(Describe(Line(), "n", fits + "x", kGiB, &allocation, &error));
  EXPECT_EQ(error, "the path " + fits + "x is too long: choose a shorter --state-dir");
}

}  // namespace
}  // namespace gpuloom::run
