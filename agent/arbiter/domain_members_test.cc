// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/domain_members.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>

namespace gpuloom::arbiter {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr Engine kCompute = Engine::kCompute;

// A device that does one piece after the other, and a tenant that starts a process for each of its kernels.
struct Machine {
  // How long after its end a session is gone, as in the executor.
  static constexpr uint64_t kEndNs = 20 * kMs;

  DomainArbiter arbiter;
  DomainMembers members{&arbiter};
  uint64_t now_ns = 0;
  uint64_t used_ns = 0;  // by the tenant
  uint64_t used_by_other_ns = 0;
  std::optional<SessionId> other;  // always wants the device, if there is one

  void AddOther(const DomainMembers::Terms& terms) {
    other = arbiter.BeginSession(members.Join(100, 100, terms, now_ns), now_ns);
    // Always one more than what runs, or it would pause for a moment after each.
    Want(*other, kMs);
    Want(*other, kMs);
  }
  void Want(SessionId session, uint64_t ns) { arbiter.Queued(session, kCompute, {1, ns}, now_ns); }
  void Run(SessionId session, uint64_t ns) {
    arbiter.Submitted(session, kCompute, {1, ns}, now_ns);
    now_ns += ns;
    arbiter.Finished(session, kCompute, {1, ns}, ns, now_ns);
  }
  void RunOther() {
    Run(*other, kMs);
    used_by_other_ns += kMs;
    Want(*other, kMs);
  }
  // From the process's beginning until it is gone.
  void RunProcess(uint64_t allocation, const DomainMembers::Terms& terms, uint64_t kernel_ns) {
    const AllocationId id = members.Join(1, allocation, terms, now_ns);
    const SessionId session = arbiter.BeginSession(id, now_ns);
    Want(session, kernel_ns);
    for (;;) {
      const auto order = arbiter.Next(kCompute, now_ns);
      if (order && order->session == session) break;
      if (order) {
        RunOther();
      } else {
        now_ns = std::max(now_ns + 1, arbiter.wake_at_ns(now_ns));
      }
    }
    Run(session, kernel_ns);
    used_ns += kernel_ns;
    for (const uint64_t gone_ns = now_ns + kEndNs; now_ns < gone_ns;) {
      if (other && arbiter.Next(kCompute, now_ns)) {
        RunOther();
      } else {
        now_ns = gone_ns;
      }
    }
    arbiter.EndSession(session, now_ns);
    members.Leave(id);
    members.Forget(now_ns);
  }
};

// Of the namespace or of the allocation, whatever the kernels' lengths: the share of the time, the bucket, and one kernel.
TEST(DomainMembers, Malicious_AProcessForEachKernelGetsNoMoreThanTheCeiling) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto permille = static_cast<uint32_t>(10 + random() % 500);
    DomainMembers::Terms terms;
    // A namespace's holds for a pod for each kernel, too.
    const bool of_namespace = seed % 2 == 0;
    (of_namespace ? terms.of_namespace.ceiling_permille : terms.of_allocation.ceiling_permille) =
        permille;
    Machine machine;
    uint64_t longest_ns = 0;
    for (uint64_t pod = 1; machine.now_ns < 50'000 * kMs; ++pod) {
      const uint64_t kernel_ns = 1 + random() % (seed % 3 == 0 ? 5 * kMs : 2000 * kMs);
      longest_ns = std::max(longest_ns, kernel_ns);
      machine.RunProcess(of_namespace ? pod : 1, terms, kernel_ns);
    }
    EXPECT_LE(machine.used_ns,
              (machine.now_ns + kCeilingWindowNs) / 1000 * permille + longest_ns + 1000);
    // Nor is it less, for who always has more to do: but for the times in which nothing was there.
    if (seed % 3 != 0) {
      EXPECT_GE(machine.used_ns + longest_ns, machine.now_ns / 1000 * permille * 9 / 10);
    }
  }
}

TEST(DomainMembers, Malicious_AProcessForEachKernelGetsNoMoreThanItsShare) {
  for (const uint64_t kernel_ns : {5 * kMs, 50 * kMs, 500 * kMs}) {
    SCOPED_TRACE(kernel_ns);
    Machine machine;
    machine.AddOther({{.weight = 300}, {}});
    while (machine.now_ns < 20'000 * kMs) machine.RunProcess(1, {{.weight = 100}, {}}, kernel_ns);
    EXPECT_LE(machine.used_ns, machine.now_ns / 4 + kernel_ns + 10 * kMs);
  }
}

TEST(DomainMembers, WhoOwesNothingIsForgotten) {
  Machine machine;
  machine.RunProcess(1, {}, 100 * kMs);
  EXPECT_EQ(machine.members.size(), 0u);
  const DomainMembers::Terms tenth{{.ceiling_permille = 100}, {.ceiling_permille = 100}};
  machine.RunProcess(2, tenth, 100 * kMs);
  EXPECT_EQ(machine.members.size(), 2u);
  // It has had 100 ms, of which 10 have come back while it ran, and 2 until it was gone.
  machine.members.Forget(machine.now_ns + 879 * kMs);
  EXPECT_EQ(machine.members.size(), 2u);
  // What a lone one is ahead by while its ceiling is empty counts for ten seconds.
  machine.members.Forget(machine.now_ns + 10'000 * kMs);
  EXPECT_EQ(machine.members.size(), 0u);
}

TEST(DomainMembers, Malicious_VeryManyThatOweAreNotAllRemembered) {
  Machine machine;
  for (uint64_t pod = 1; pod <= DomainMembers::kMostUnused + 10; ++pod) {
    const AllocationId id = machine.members.Join(1, pod, {{}, {.ceiling_permille = 10}}, 0);
    const SessionId session = machine.arbiter.BeginSession(id, 0);
    machine.arbiter.Charge(session, kCompute, kMs, 0);
    machine.arbiter.EndSession(session, 0);
    machine.members.Leave(id);
    machine.members.Forget(0);
  }
  EXPECT_EQ(machine.members.size(), DomainMembers::kMostUnused + 1) << "and their namespace";
  machine.RunProcess(1'000'000, {}, kMs);
}

TEST(DomainMembers, ANewSessionHasTheTermsOfItsOwnBeginning) {
  DomainArbiter arbiter;
  DomainMembers members(&arbiter);
  const AllocationId id = members.Join(1, 1, {{}, {.priority = Priority::kHigh}}, 0);
  EXPECT_EQ(arbiter.priority(id), Priority::kHigh);
  members.Leave(id);
  EXPECT_EQ(arbiter.priority(members.Join(1, 1, {{}, {.priority = Priority::kLow}}, 0)),
            Priority::kLow);
  EXPECT_TRUE(members.Set(1, {}, 0));
  EXPECT_EQ(arbiter.priority(id), Priority::kNormal);
  EXPECT_FALSE(members.Set(2, {}, 0));
}

}  // namespace
}  // namespace gpuloom::arbiter
