// SPDX-License-Identifier: Apache-2.0
// The control protocol's layout against tests/golden/control_layout.txt. Schedulers go on running
// while their agents are replaced: a change here that the golden file does not show would break them
// silently. After a lawful change (protocol_version.h says which):
//
//   GPULOOM_WRITE_GOLDEN=1 build/dev/tests/gpuloom_control_test --gtest_filter='ControlLayout.*'
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "proto/control/message_list.h"
#include "proto/control/protocol_version.h"

namespace gpuloom::control {
namespace {

constexpr char kGolden[] = GPULOOM_SOURCE_DIR "/tests/golden/control_layout.txt";

const char* RouteText(Route route) {
  switch (route) {
    case Route::kAgentAsks:
      return "agent-asks";
    case Route::kExecutorSays:
      return "executor-says";
    case Route::kSchedulerOrders:
      return "scheduler-orders";
    case Route::kAnswers:
      return "answers";
  }
  return "?";
}

std::string Layout() {
  std::ostringstream out;
  out << "version " << VersionText(kControlMajor, kControlMinor)
      << "\n\n# type name route bytes at-first descriptors\n";
  for (size_t i = 0; i < kMessages.size(); ++i) {
    const MessageInfo& info = kMessages[i];
    out << i + 1 << " " << info.name << " " << RouteText(info.route) << " " << info.body_bytes
        << " " << info.shortest_bytes << " " << info.fds << "\n";
  }
  out << "\n# what agents and schedulers say: the offset of each field\n";
#define MESSAGE(type) out << #type << "\n"
#define FIELD(type, field) out << "  " << #field << " " << offsetof(type, field) << "\n"
  MESSAGE(MessageHeader);
  FIELD(MessageHeader, type);
  FIELD(MessageHeader, request);
  MESSAGE(ControlHello);
  FIELD(ControlHello, major);
  FIELD(ControlHello, minor);
  MESSAGE(Answer);
  FIELD(Answer, ok);
  FIELD(Answer, device_memory_bytes);
  FIELD(Answer, message);
  FIELD(Answer, major);
  FIELD(Answer, minor);
  FIELD(Answer, driver_version);
  MESSAGE(AddAllocation);
  FIELD(AddAllocation, name);
  FIELD(AddAllocation, directory);
  FIELD(AddAllocation, slots);
  FIELD(AddAllocation, ends_with_connection);
  MESSAGE(BindAllocation);
  FIELD(BindAllocation, name);
  FIELD(BindAllocation, pod_namespace);
  FIELD(BindAllocation, pod);
  FIELD(BindAllocation, pod_uid);
  FIELD(BindAllocation, container);
  FIELD(BindAllocation, trust_domain);
  FIELD(BindAllocation, memory_quota_bytes);
  FIELD(BindAllocation, pinned_limit_bytes);
  FIELD(BindAllocation, shares);
  FIELD(BindAllocation, memory_wait_ms);
  FIELD(BindAllocation, kernels);
  FIELD(BindAllocation, trace);
  FIELD(BindAllocation, rescue_after_ms);
  MESSAGE(PrepareExecutor);
  FIELD(PrepareExecutor, name);
  MESSAGE(RemoveAllocation);
  FIELD(RemoveAllocation, name);
  MESSAGE(AllocationState);
  FIELD(AllocationState, name);
  FIELD(AllocationState, pod_namespace);
  FIELD(AllocationState, pod);
  FIELD(AllocationState, pod_uid);
  FIELD(AllocationState, container);
  FIELD(AllocationState, trust_domain);
  FIELD(AllocationState, bound);
  FIELD(AllocationState, slots);
  FIELD(AllocationState, sessions);
  FIELD(AllocationState, unsupported_count);
  FIELD(AllocationState, memory_quota_bytes);
  FIELD(AllocationState, memory_used_bytes);
  FIELD(AllocationState, memory_peak_bytes);
  FIELD(AllocationState, memory_refused_count);
  FIELD(AllocationState, kernels_launched);
  FIELD(AllocationState, unsupported);
  FIELD(AllocationState, time);
  FIELD(AllocationState, shares);
  FIELD(AllocationState, suspended);
  FIELD(AllocationState, held_sessions);
  FIELD(AllocationState, memory_waiting);
  FIELD(AllocationState, work);
  FIELD(AllocationState, sessions_begun);
  FIELD(AllocationState, sessions_refused);
  FIELD(AllocationState, faults);
  FIELD(AllocationState, long_kernels);
  FIELD(AllocationState, kernels);
  FIELD(AllocationState, latest_fault);
  FIELD(AllocationState, latest_refusal);
  FIELD(AllocationState, pending_partition);
  FIELD(AllocationState, pending_partitions);
  MESSAGE(SuspendAllocation);
  FIELD(SuspendAllocation, name);
  FIELD(SuspendAllocation, suspend);
  MESSAGE(ShareTerms);
  FIELD(ShareTerms, namespace_weight);
  FIELD(ShareTerms, weight);
  FIELD(ShareTerms, priority);
  FIELD(ShareTerms, namespace_time_permille);
  FIELD(ShareTerms, time_permille);
  MESSAGE(KernelTerms);
  FIELD(KernelTerms, warn_after_ms);
  FIELD(KernelTerms, end_after_ms);
  MESSAGE(TimeUsage);
  FIELD(TimeUsage, compute_ns);
  FIELD(TimeUsage, copy_to_device_ns);
  FIELD(TimeUsage, copy_from_device_ns);
  FIELD(TimeUsage, queue_ns);
  FIELD(TimeUsage, throttled_ns);
  FIELD(TimeUsage, held_ns);
  MESSAGE(BeginTrace);
  FIELD(BeginTrace, limit_ms);
  MESSAGE(TracePart);
  FIELD(TracePart, executor_id);
  FIELD(TracePart, end);
  FIELD(TracePart, trust_domain);
  FIELD(TracePart, message);
  MESSAGE(TraceSession);
  FIELD(TraceSession, session_id);
  FIELD(TraceSession, executor_id);
  FIELD(TraceSession, pod_namespace);
  FIELD(TraceSession, pod);
  FIELD(TraceSession, pod_uid);
  FIELD(TraceSession, container);
  FIELD(TraceSession, time);
#undef FIELD
#undef MESSAGE
  return out.str();
}

TEST(ControlLayout, ChangesOnlyWithItsVersion) {
  if (std::getenv("GPULOOM_WRITE_GOLDEN") != nullptr) std::ofstream(kGolden) << Layout();
  std::ifstream file(kGolden);
  ASSERT_TRUE(file) << "cannot read " << kGolden;
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(golden.str(), Layout())
      << "the control protocol has changed: raise kControlMinor (or the major: protocol_version.h "
         "says when) and write the golden file anew in the same commit";
}

}  // namespace
}  // namespace gpuloom::control
