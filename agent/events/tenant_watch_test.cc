// SPDX-License-Identifier: Apache-2.0
#include "agent/events/tenant_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/control/connection.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

control::AllocationState Of(const char* name, const char* pod) {
  control::AllocationState state{};
  control::SetText(state.name, name);
  control::SetText(state.pod_namespace, "team-a");
  control::SetText(state.pod, pod);
  control::SetText(state.container, "main");
  state.bound = 1;
  state.memory_quota_bytes = uint64_t{8} << 30;
  return state;
}

class TenantWatchTest : public ::testing::Test {
 protected:
  std::vector<Event> Look(const std::vector<control::AllocationState>& states) {
    GpuReport report;
    report.tells_gpu = true;
    control::SetText(report.gpu.uuid, "GPU-1");
    report.allocations = states;
    return watch_.Look(report);
  }

  TenantWatch watch_;
};

TEST_F(TenantWatchTest, WhatWasThereBeforeIsNoNewsAndWhatIsAddedIs) {
  control::AllocationState state = Of("one", "p");
  state.memory_refused_count = 7;
  state.faults[1] = 3;
  EXPECT_THAT(Look({state}), IsEmpty());
  EXPECT_THAT(Look({state}), IsEmpty());
  state.memory_refused_count = 9;
  state.faults[1] = 4;
  state.sessions_refused = 1;
  control::SetText(state.latest_fault, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  const std::vector<Event> events = Look({state});
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[0].reason, "GpuMemoryRefused");
  EXPECT_THAT(events[0].message,
              AllOf(HasSubstr("2 requests"), HasSubstr("8GiB"), HasSubstr("GPU-1")));
  EXPECT_EQ(events[1].reason, "GpuProcessRefused");
  EXPECT_EQ(events[2].reason, "GpuFault");
  EXPECT_THAT(events[2].message, ::testing::EndsWith(": CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
  EXPECT_EQ(events[2].pod_namespace + "/" + events[2].pod + "/" + events[2].container,
            "team-a/p/main");
  EXPECT_EQ(events[2].instance, "one") << "another pod of that name has another allocation";
  EXPECT_TRUE(events[2].is_warning);
}

TEST_F(TenantWatchTest, WhatHasHappenedSinceAnotherAgentSawItIsNews) {
  TenantWatch::Counts seen;
  seen.memory_refusals = 7;
  seen.faults[1] = 3;
  watch_.Resume({{"one", seen}});
  control::AllocationState state = Of("one", "p");
  state.memory_refused_count = 7;
  state.faults[1] = 5;
  control::AllocationState later = Of("two", "q");
  later.sessions_refused = 1;
  const std::vector<Event> events = Look({state, later});
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].reason, "GpuFault");
  EXPECT_THAT(events[0].message, HasSubstr("2 processes"));
  EXPECT_EQ(events[1].reason, "GpuProcessRefused");
  EXPECT_THAT(Look({state, later}), IsEmpty());
}

TEST_F(TenantWatchTest, ATenantThatCameLaterBeginsWithNothing) {
  EXPECT_THAT(Look({}), IsEmpty());
  control::AllocationState state = Of("one", "p");
  state.faults[4] = 1;
  state.long_kernels = 1;
  const std::vector<Event> events = Look({state});
  ASSERT_THAT(events, SizeIs(1)) << "one kernel, told once";
  EXPECT_EQ(events[0].reason, "GpuKernelTooLong");
  state.long_kernels = 2;
  EXPECT_EQ(Look({state}).at(0).reason, "GpuKernelLong");
}

TEST_F(TenantWatchTest, MultiprocessorsThatDoNotFollowThePolicyAreSaidOnce) {
  control::AllocationState state = Of("one", "p");
  EXPECT_THAT(Look({state}), IsEmpty());
  state.pending_partitions = 1;
  control::SetText(state.pending_partition, "there is no room yet");
  const std::vector<Event> events = Look({state});
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].reason, "GpuPartitionPending");
  EXPECT_THAT(events[0].message, ::testing::EndsWith("on GPU GPU-1: there is no room yet"));
  EXPECT_THAT(Look({state}), IsEmpty());
  state.pending_partitions = 2;
  state.pending_partition[0] = 0;
  EXPECT_THAT(Look({state}).at(0).message, ::testing::EndsWith(": has them meanwhile"));
}

TEST_F(TenantWatchTest, ASchedulerThatBeginsAnewCountsAnew) {
  control::AllocationState state = Of("one", "p");
  state.faults[0] = 5;
  (void)Look({state});
  state.faults[0] = 0;
  EXPECT_THAT(Look({state}), IsEmpty());
  state.faults[0] = 5;
  EXPECT_THAT(Look({state}), SizeIs(1));
  state.faults[0] = 2;
  EXPECT_THAT(Look({state}).at(0).message, HasSubstr("2 processes")) << "all since it began";
  state.bound = 0;
  state.faults[0] = 9;
  EXPECT_THAT(Look({state}), IsEmpty());
}

}  // namespace
}  // namespace gpuloom
