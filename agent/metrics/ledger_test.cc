// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/ledger.h"

#include <gtest/gtest.h>

#include <random>

#include "agent/metrics/testing/reports.h"

namespace gpuloom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class LedgerTest : public ::testing::Test {
 protected:
  // The scheduler has run for as long as it was not restarted.
  void Report(const std::vector<control::AllocationState>& allocations,
              bool is_new_connection = false) {
    const double running = std::chrono::duration<double>(now_ - scheduler_began_).count();
    ledger_.Add(kGpu, ReportOf(allocations, running), is_new_connection, now_);
    ledger_.Forget(now_);
  }
  void Restart() { scheduler_began_ = now_; }
  const Tenant& TenantOf(const std::string& pod_namespace, const std::string& pod) {
    const auto found = ledger_.tenants.find({pod_namespace, pod, "main", kGpu});
    EXPECT_NE(found, ledger_.tenants.end()) << pod;
    static const Tenant kNone;
    return found == ledger_.tenants.end() ? kNone : found->second;
  }
  uint64_t Kernels(const std::string& pod_namespace) {
    return ledger_.namespaces[pod_namespace].counts.kernels;
  }

  Clock::Time now_{seconds(1'700'000'000)};
  Clock::Time scheduler_began_ = now_ - seconds(100);
  Ledger ledger_;
};

TEST_F(LedgerTest, WhatIsNewIsAddedToTenantAndNamespace) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  control::AllocationState b = AllocationOf("b1", "red", "q");
  Use(&a, 1);
  Use(&b, 2);
  Report({a, b});
  EXPECT_EQ(TenantOf("red", "p").counts.kernels, 10u);
  EXPECT_EQ(Kernels("red"), 30u);
  now_ += seconds(1);
  Use(&a, 5);
  Report({a, b});
  const TenantCounts& counts = TenantOf("red", "p").counts;
  EXPECT_EQ(counts.kernels, 50u);
  EXPECT_EQ(counts.time.compute_ns, 5'000'000'000u);
  EXPECT_EQ(counts.work.queue.counts[0], 15u);
  EXPECT_EQ(counts.faults[3], 5u);
  EXPECT_EQ(TenantOf("red", "q").counts.kernels, 20u);
  EXPECT_EQ(Kernels("red"), 70u);
}

// A container's restart keeps its allocation; a pod of the same name gets another, which begins at 0.
TEST_F(LedgerTest, AllocationsUnderOneNameAreOneTenant) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  Use(&a, 4);
  a.memory_peak_bytes = 70;
  Report({a});
  now_ += seconds(1);
  control::AllocationState next = AllocationOf("a2", "red", "p");
  Use(&next, 1);
  next.memory_peak_bytes = 30;
  Report({a, next});
  EXPECT_EQ(TenantOf("red", "p").counts.kernels, 50u);
  EXPECT_EQ(TenantOf("red", "p").now.slots, 4u);
  EXPECT_EQ(TenantOf("red", "p").memory_peak_bytes, 70u);
  now_ += seconds(1);
  Report({next});
  EXPECT_EQ(TenantOf("red", "p").counts.kernels, 50u);
  EXPECT_EQ(TenantOf("red", "p").now.slots, 2u);
}

TEST_F(LedgerTest, ARestartedSchedulerBeginsAgainAndNothingGoesBack) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  Use(&a, 4);
  Report({a});
  now_ += seconds(5);
  Restart();
  now_ += milliseconds(500);
  Use(&a, 1);
  Report({a}, true);
  EXPECT_EQ(TenantOf("red", "p").counts.kernels, 50u);
  const GpuUse& gpu = ledger_.gpus[kGpu];
  EXPECT_EQ(gpu.scheduler_restarts, 1u);
  EXPECT_EQ(gpu.counts.busy.compute_ns, 5'000'000'000u);
  EXPECT_EQ(gpu.counts.started, 2u);
  EXPECT_EQ(gpu.domains.at("namespace/red").counts.started, 2u);
}

// Its figures have overtaken those of the one before while nobody asked: only how long it has run shows it.
TEST_F(LedgerTest, ARestartBehindALongGapIsSeenByTheTimeThatTheSchedulerHasRun) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  Use(&a, 4);
  Report({a});
  now_ += seconds(100);
  Restart();
  now_ += seconds(900);
  Use(&a, 7);
  Report({a}, true);
  EXPECT_EQ(TenantOf("red", "p").counts.kernels, 110u);
  EXPECT_EQ(ledger_.gpus[kGpu].scheduler_restarts, 1u);
  // The same one over a new connection is no other.
  now_ += seconds(900);
  Use(&a, 8);
  Report({a}, true);
  EXPECT_EQ(Kernels("red"), 120u);
  EXPECT_EQ(ledger_.gpus[kGpu].scheduler_restarts, 1u);
}

TEST_F(LedgerTest, ANameThatIsUsedAgainBySomebodyElsePassesNothingOn) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  Use(&a, 4);
  Report({a});
  control::AllocationState b = AllocationOf("a1", "blue", "p");
  Use(&b, 6);
  now_ += seconds(1);
  Report({b});
  EXPECT_EQ(Kernels("red"), 40u);
  EXPECT_EQ(Kernels("blue"), 60u);
  // And begins again with less.
  Use(&b, 1);
  now_ += seconds(1);
  Report({b});
  EXPECT_EQ(Kernels("blue"), 70u);
}

TEST_F(LedgerTest, APodLingersForFiveMinutesAndItsNamespaceForEver) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  Use(&a, 4);
  a.memory_used_bytes = 100;
  Report({a});
  now_ += Ledger::kLinger;
  Report({});
  EXPECT_EQ(TenantOf("red", "p").counts.kernels, 40u);
  EXPECT_EQ(TenantOf("red", "p").now.memory_used_bytes, 0u);
  EXPECT_EQ(ledger_.gpus[kGpu].domains.size(), 1u);
  now_ += milliseconds(1);
  Report({});
  EXPECT_TRUE(ledger_.tenants.empty());
  EXPECT_TRUE(ledger_.gpus[kGpu].domains.empty());
  now_ += std::chrono::hours(24 * 365);
  Report({});
  EXPECT_EQ(Kernels("red"), 40u);
}

TEST_F(LedgerTest, HeldMemoryAndSlotsAreChargedByTheTime) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  a.memory_used_bytes = 1000;
  Report({a});
  now_ += seconds(10);
  a.memory_used_bytes = 0;
  Report({a});
  now_ += seconds(5);
  Report({});
  now_ += seconds(5);
  Report({});
  const NamespaceUse& use = ledger_.namespaces["red"];
  EXPECT_DOUBLE_EQ(use.memory_byte_seconds, 10'000);
  EXPECT_DOUBLE_EQ(use.quota_byte_seconds, 15 * 2048.0);
  EXPECT_DOUBLE_EQ(use.slot_seconds, 30);
  // What was held while nobody looked is not known.
  a.memory_used_bytes = 1;
  Report({a});
  now_ += std::chrono::hours(5);
  Report({});
  EXPECT_DOUBLE_EQ(use.memory_byte_seconds, 10'060);
}

// A reboot may lose the date.
TEST_F(LedgerTest, TimeThatGoesBackTakesNothingAway) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  a.memory_used_bytes = 1000;
  Report({a});
  now_ += seconds(10);
  Report({a});
  now_ -= std::chrono::hours(5);
  ledger_.Add(kGpu, ReportOf({a}, 1000), /*is_new_connection=*/true, now_);
  const NamespaceUse& use = ledger_.namespaces["red"];
  EXPECT_DOUBLE_EQ(use.memory_byte_seconds, 10'000);
  EXPECT_DOUBLE_EQ(use.slot_seconds, 20);
  now_ += seconds(1);
  ledger_.Add(kGpu, ReportOf({a}, 1001), /*is_new_connection=*/false, now_);
  EXPECT_DOUBLE_EQ(use.memory_byte_seconds, 11'000);
}

TEST_F(LedgerTest, ADomainHoldsWhatItsTenantsDo) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  control::AllocationState b = AllocationOf("b1", "red", "q");
  control::AllocationState c = AllocationOf("c1", "blue", "r");
  control::AllocationState nobodys = AllocationOf("d1", "red", "s");
  a.memory_used_bytes = 100;
  b.memory_used_bytes = 20;
  c.memory_used_bytes = 3;
  nobodys.bound = 0;
  Report({a, b, c, nobodys});
  const std::map<std::string, DomainUse>& domains = ledger_.gpus[kGpu].domains;
  const DomainUse& red = domains.at("namespace/red");
  EXPECT_EQ(red.slots, 4u);
  EXPECT_EQ(red.memory_promised_bytes, 4096u);
  EXPECT_EQ(red.memory_used_bytes, 120u);
  EXPECT_EQ(domains.at("namespace/blue").memory_used_bytes, 3u);
  now_ += seconds(1);
  a.memory_quota_bytes = 1000;
  Report({a, c});
  EXPECT_EQ(red.slots, 2u);
  EXPECT_EQ(red.memory_promised_bytes, 1000u);
  EXPECT_EQ(red.memory_used_bytes, 100u);
  now_ += seconds(1);
  Report({c});
  EXPECT_EQ(red.slots, 0u);
  EXPECT_EQ(red.memory_used_bytes, 0u);
}

TEST_F(LedgerTest, OnlyCudasOwnNamesBecomeLabels) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  control::SetText(a.unsupported, "cuGraphicsMapResources\ncuFly?Away\n\nx\"} 1\n");
  Report({a});
  EXPECT_EQ(TenantOf("red", "p").unsupported, std::set<std::string>{"cuGraphicsMapResources"});
  EXPECT_TRUE(TenantOf("red", "p").other_unsupported);
}

TEST_F(LedgerTest, Malicious_NamesAreOneLineOfAscii) {
  Report({AllocationOf("a1", "red\n\xff", "p\x1b[2J")});
  EXPECT_EQ(ledger_.tenants.begin()->first.pod_namespace, "red\\n\\xff");
  EXPECT_EQ(ledger_.tenants.begin()->first.pod, "p\\x1b[2J");
}

TEST_F(LedgerTest, Malicious_FiguresStopAtTheLargestNumber) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  control::AllocationState b = AllocationOf("b1", "red", "q");
  a.kernels_launched = UINT64_MAX;
  b.kernels_launched = 5;
  Report({a, b});
  EXPECT_EQ(Kernels("red"), UINT64_MAX);
}

TEST_F(LedgerTest, Malicious_PodsAndNamespacesWithoutEndAreForgottenTheOldestFirst) {
  const control::AllocationState stays = AllocationOf("stays", "stays", "p");
  const size_t many = Ledger::kMaxNamespaces + Ledger::kMaxLingering;
  for (size_t i = 0; i < many; ++i) {
    now_ += milliseconds(1);
    Report({stays, AllocationOf("a" + std::to_string(i), "n" + std::to_string(i), "p")});
  }
  now_ += milliseconds(1);
  Report({stays});
  EXPECT_EQ(ledger_.tenants.size(), Ledger::kMaxLingering + 1);
  // Those of tenants that linger, and that of the one that is there.
  EXPECT_LE(ledger_.namespaces.size(), Ledger::kMaxNamespaces + Ledger::kMaxLingering + 1);
  EXPECT_TRUE(ledger_.namespaces.contains("n" + std::to_string(many - 1)));
  now_ += Ledger::kLinger + milliseconds(1);
  Report({stays});
  EXPECT_EQ(ledger_.tenants.size(), 1u);
  EXPECT_EQ(ledger_.namespaces.size(), Ledger::kMaxNamespaces + 1);
  EXPECT_TRUE(ledger_.namespaces.contains("stays"));
  EXPECT_FALSE(ledger_.namespaces.contains("n0"));
}

TEST_F(LedgerTest, ASilentSchedulersTenantsHoldNobodyKnowsWhatAndCountOn) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  Use(&a, 4);
  Report({a});
  ledger_.SetSilent(kGpu);
  EXPECT_FALSE(ledger_.gpus[kGpu].is_answering);
  now_ += 2 * Ledger::kLinger;
  ledger_.Forget(now_);
  EXPECT_TRUE(ledger_.tenants.empty());
  Use(&a, 6);
  Report({a}, true);
  EXPECT_EQ(TenantOf("red", "p").counts.kernels, 20u) << "what is new";
  EXPECT_EQ(Kernels("red"), 60u);
}

TEST_F(LedgerTest, ASchedulerOfControl3_2IsCountedAsFarAsItTells) {
  control::AllocationState a = AllocationOf("a1", "red", "p");
  a.kernels_launched = 7;
  GpuReport report;
  report.allocations = {a};
  ledger_.Add(kGpu, report, true, now_);
  EXPECT_EQ(Kernels("red"), 7u);
  EXPECT_FALSE(ledger_.gpus[kGpu].tells_gpu);
  EXPECT_TRUE(ledger_.gpus[kGpu].domains.empty()) << "of which it tells nothing";
  // It is replaced by one of today, whose figures begin again.
  now_ += seconds(3);
  Restart();
  a.kernels_launched = 2;
  Report({a}, true);
  EXPECT_EQ(Kernels("red"), 9u);
}

// Whatever comes and goes: tenants are charged exactly what the GPU was busy for, and no figure ever goes back.
TEST_F(LedgerTest, GpuSecondsOfAllAddUpToTheBusyTimeAndNothingGoesBack) {
  std::minstd_rand random(7);
  struct Running {
    control::AllocationState state;
    uint64_t factor = 0;
  };
  std::map<std::string, Running> running;
  control::BusyTime gone{};  // of allocations that have been removed
  uint64_t last_busy_ns = 0;
  std::map<std::string, uint64_t> last;
  for (int step = 0; step < 3000; ++step) {
    now_ += milliseconds(1000);
    bool is_new_connection = false;
    switch (random() % 20) {
      case 0: {
        const std::string name = "a" + std::to_string(step);
        running[name].state = AllocationOf(name, "n" + std::to_string(random() % 3),
                                           "p" + std::to_string(random() % 5));
        break;
      }
      case 1:
        if (!running.empty()) {
          const control::TimeUsage& time = running.begin()->second.state.time;
          gone.compute_ns += time.compute_ns;
          gone.copy_to_device_ns += time.copy_to_device_ns;
          gone.copy_from_device_ns += time.copy_from_device_ns;
          running.erase(running.begin());
        }
        break;
      case 2:
        Restart();
        gone = {};
        is_new_connection = true;
        for (auto& [name, one] : running) {
          one.factor = 0;
          Use(&one.state, 0);
        }
        break;
      default:
        for (auto& [name, one] : running) Use(&one.state, one.factor += random() % 4);
    }
    std::vector<control::AllocationState> states;
    for (const auto& [name, one] : running) states.push_back(one.state);
    GpuReport report =
        ReportOf(states, std::chrono::duration<double>(now_ - scheduler_began_).count());
    report.gpu.busy.compute_ns += gone.compute_ns;
    report.gpu.busy.copy_to_device_ns += gone.copy_to_device_ns;
    report.gpu.busy.copy_from_device_ns += gone.copy_from_device_ns;
    ledger_.Add(kGpu, report, is_new_connection, now_);
    ledger_.Forget(now_);

    uint64_t of_namespaces = 0;
    for (const auto& [name, use] : ledger_.namespaces) {
      EXPECT_GE(use.counts.time.compute_ns, last[name]);
      of_namespaces += last[name] = use.counts.time.compute_ns;
    }
    const uint64_t busy_ns = ledger_.gpus[kGpu].counts.busy.compute_ns;
    ASSERT_EQ(of_namespaces, busy_ns) << step;
    ASSERT_GE(busy_ns, last_busy_ns);
    last_busy_ns = busy_ns;
  }
  EXPECT_GT(last_busy_ns, 0u);
  EXPECT_GT(ledger_.gpus[kGpu].scheduler_restarts, 50u);
}

}  // namespace
}  // namespace gpuloom
