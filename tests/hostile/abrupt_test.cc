// SPDX-License-Identifier: Apache-2.0
// Sessions that end in the middle of things, by the hundred: what they leave on the node.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "agent/executor/process/sanitized.h"
#include "tests/hostile/hostile_tenant.h"
#include "tests/integration/stack.h"

namespace gpuloom::testing {
namespace {

struct Footprint {
  size_t resident_kib = 0;
  size_t threads = 0;
  size_t descriptors = 0;
};

Footprint FootprintOf(pid_t pid) {
  Footprint footprint;
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name == "VmRSS:") words >> footprint.resident_kib;
    if (name == "Threads:") words >> footprint.threads;
  }
  footprint.descriptors = DescriptorCount(pid);
  return footprint;
}

class AbruptSessions : public ::testing::Test {
 protected:
  // Streams with work, events, memory that is written, pinned pages, then nothing more is heard of it.
  void OneSession(int number) {
    std::unique_ptr<HostileTenant> tenant;
    // Those before may still be ending.
    ASSERT_TRUE(Eventually([&] {
      tenant = std::make_unique<HostileTenant>(allocation_.directory);
      return tenant->Attach();
    }));
    const uint64_t host = tenant->welcome().host_range_begin;
    std::memset(tenant->arena(), 1, kPinnedBytes);
    tenant->Write<wire::HostRegister>({wire::HostPtr{host}, kPinnedBytes}, "", 0);
    const wire::Ticket asked = tenant->Write<wire::MemAlloc>({4 * kMiB}, "", 1);
    const wire::ReplySlot* answer = tenant->WaitForReply(1, asked);
    ASSERT_NE(answer, nullptr);
    ASSERT_EQ(answer->result, 0u);
    uint64_t memory = 0;
    std::memcpy(&memory, answer->reply, sizeof(memory));
    for (uint32_t id = 1; id <= kStreams; ++id) {
      const wire::Ticket made =
          tenant->Write<wire::StreamCreate>({wire::StreamId{id}, 1, 0}, "", 2 + id % 32);
      ASSERT_NE(tenant->WaitForReply(2 + id % 32, made), nullptr);
      tenant->Write<wire::Fill>({wire::StreamId{id}, 4, 0, 0, memory, 1024});
      tenant->Write<wire::EventCreate>({wire::EventId{id}, id % 2});
      tenant->Write<wire::EventRecord>({wire::EventId{id}, wire::StreamId{id}});
      if (id % 32 == 0) {
        ASSERT_NE(tenant->WaitForReply(40, Ask(tenant.get())), nullptr);
      }
    }
    // Some in the midst of it, some when all is done.
    if (number % 2 == 0) {
      ASSERT_NE(tenant->WaitForReply(40, Ask(tenant.get())), nullptr);
    }
    ASSERT_EQ(tenant->completions().fatal(), wire::Fatal::kNone);
  }
  static wire::Ticket Ask(HostileTenant* tenant) {
    return tenant->Write<wire::MemInfo>({}, "", 40);
  }
  void Sessions(int count) {
    for (int i = 0; i < count; ++i) ASSERT_NO_FATAL_FAILURE(OneSession(i)) << i;
    // Nothing is charged but what the driver keeps of their streams (docs/policy.md).
    ASSERT_TRUE(Eventually([&] {
      const control::AllocationState state = stack_.State(allocation_);
      return state.sessions == 0 && state.memory_used_bytes % kStreamBytes == 0 &&
             state.memory_used_bytes <= 2 * kStreams * kStreamBytes;
    })) << stack_.State(allocation_).memory_used_bytes;
    // Streams and descriptors go a little later, on workers.
    ASSERT_TRUE(Eventually([&] {
      return FootprintOf(stack_.ExecutorOf("team-a")).threads < kStreams + 60;
    })) << FootprintOf(stack_.ExecutorOf("team-a")).threads;
  }

  static constexpr uint32_t kStreams = 96;
  static constexpr uint64_t kStreamBytes = 544 << 10;
  static constexpr uint64_t kPinnedBytes = 64 << 10;
  Stack stack_;
  const Allocation allocation_ = stack_.Allocate({.quota_bytes = 256 * kMiB});
};

TEST_F(AbruptSessions, AThousandLeaveMemoryDescriptorsAndThreadsAsTheyWere) {
  ASSERT_NO_FATAL_FAILURE(Sessions(100));
  const pid_t executor = stack_.ExecutorOf("team-a");
  const Footprint executor_before = FootprintOf(executor);
  const Footprint scheduler_before = FootprintOf(stack_.scheduler().pid());
  ASSERT_NO_FATAL_FAILURE(Sessions(900));
  ASSERT_EQ(stack_.ExecutorOf("team-a"), executor);
  for (const auto& [name, pid, before] :
       {std::tuple{"executor", executor, executor_before},
        std::tuple{"scheduler", stack_.scheduler().pid(), scheduler_before}}) {
    EXPECT_TRUE(Eventually([pid = pid, before = before] {
      const Footprint after = FootprintOf(pid);
      return after.threads <= before.threads + 4 && after.descriptors <= before.descriptors + 4;
    })) << name
        << ": threads " << before.threads << " and " << FootprintOf(pid).threads << ", descriptors "
        << before.descriptors << " and " << FootprintOf(pid).descriptors;
    const Footprint after = FootprintOf(pid);
    printf("%s: %zu and %zu KiB, %zu and %zu threads, %zu and %zu descriptors\n", name,
           before.resident_kib, after.resident_kib, before.threads, after.threads,
           before.descriptors, after.descriptors);
    if (!executor::kSanitized) {
      EXPECT_LE(after.resident_kib, before.resident_kib + (8u << 10)) << name;
    }
  }
}

}  // namespace
}  // namespace gpuloom::testing
