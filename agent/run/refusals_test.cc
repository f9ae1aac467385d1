// SPDX-License-Identifier: Apache-2.0
// What schedulers may say of their tenants, as lines of one table.
#include "agent/run/refusals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "agent/node/refusal_file.h"

namespace gpuloom::run {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kNowhere[] = "/nonexistent";

control::AllocationState Tenant(const std::string& pod) {
  control::AllocationState state{};
  control::SetText(state.pod_namespace, "team-a");
  control::SetText(state.pod, pod.c_str());
  control::SetText(state.container, "main");
  return state;
}

uint64_t& FaultsOf(control::AllocationState* state, control::Fault fault) {
  return state->faults[static_cast<size_t>(fault)];
}

// Of a scheduler of this release that has these tenants.
std::string Table(const std::vector<control::AllocationState>& tenants) {
  SchedulerFigures scheduler;
  scheduler.speaks_3_3 = true;
  scheduler.allocations = tenants;
  return FormatAllRefusals(kNowhere, {scheduler}, Format::kTable);
}

TEST(Refusals, WhoWasRefusedNothingIsNotThere) {
  EXPECT_EQ(Table({Tenant("p")}), "LAST   TIMES   WHAT   POD   REASON\n");
}

TEST(Refusals, LastIsWallTimeAfterTheMachinesClockWasSet) {
  std::string state = ::testing::TempDir() + "refusalsXXXXXX";
  ASSERT_NE(mkdtemp(state.data()), nullptr);
  std::ofstream(RefusalPath(state)) << FormatRefusals({{"Allocate", "no", 1, 1'700'000'000}});
  // The agent's clock began this boot in 1970.
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::ofstream(state + "/clock.yaml") << "boot: \"" << boot << "\"\nsinceBootMs: 0\ntimeMs: 0\n";
  const Json json = Json::parse(FormatAllRefusals(state, {}, Format::kJson));
  EXPECT_GT(json["refusals"][0]["last"].get<int64_t>(), 3'000'000'000);
  std::filesystem::remove_all(state);
}

TEST(Refusals, EachKindHasItsLineAndOneReasonIsWhole) {
  control::AllocationState refused = Tenant("p");
  refused.sessions_refused = 2;
  control::SetText(refused.latest_refusal, "team-a/p/main has 64 processes on this GPU already");
  control::AllocationState faulty = Tenant("q");
  FaultsOf(&faulty, control::Fault::kLongKernel) = 3;
  control::SetText(faulty.latest_fault, "kernel slow ran for too long");
  control::AllocationState full = Tenant("r");
  full.memory_refused_count = 4;
  full.memory_quota_bytes = uint64_t{2} << 30;
  full.memory_used_bytes = uint64_t{1} << 30;
  control::AllocationState pending = Tenant("s");
  pending.pending_partitions = 2;
  control::SetText(pending.pending_partition, "there is no room yet");
  EXPECT_EQ(
      Table({faulty, full, refused, pending}),
      "LAST   TIMES   WHAT        POD             REASON\n"
      "-      2       process     team-a/p/main   not let in: team-a/p/main has 64 processes on "
      "this GPU already\n"
      "-      3       fault       team-a/q/main   long_kernel: kernel slow ran for too long\n"
      "-      4       memory      team-a/r/main   beyond its quota of 2.0GiB; it uses 1.0GiB\n"
      "-      2       partition   team-a/s/main   pending: there is no room yet\n");
}

TEST(Refusals, OfSeveralKindsTheLatestReasonIsSaidToBeThat) {
  control::AllocationState state = Tenant("p");
  state.sessions_refused = 1;
  FaultsOf(&state, control::Fault::kLostDevice) = 1;
  FaultsOf(&state, control::Fault::kLostExecutor) = 2;
  control::SetText(state.latest_fault, "why");
  control::SetText(state.latest_refusal, "why not");
  EXPECT_THAT(Table({state}),
              AllOf(HasSubstr("   not let in: why not\n"), HasSubstr("-      3       fault "),
                    HasSubstr("   1 lost_device, 2 lost_executor; latest: why\n")));
  // An older scheduler does not say why.
  control::SetText(state.latest_fault, "");
  EXPECT_THAT(Table({state}), HasSubstr("   1 lost_device, 2 lost_executor\n"));
}

TEST(Refusals, Malicious_ATenantsWordsAreCutAndShownAsTheyAre) {
  control::AllocationState state = Tenant("p\x1b[2J");
  std::string names;
  for (int i = 0; names.size() < 1400; ++i) names += "cuA\x1b]0;b" + std::to_string(i) + "\n";
  control::SetText(state.unsupported, names.c_str());
  state.unsupported_count = 1000;
  state.sessions_refused = 1;
  control::SetText(state.latest_refusal,
                   "\x9b"
                   "1mno\nteam-b/q/main");
  const std::string table = Table({state});
  EXPECT_THAT(table, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\x9b")),
                           HasSubstr("team-a/p\\x1b[2J/main"), HasSubstr("no\\nteam-b/q/main\n"),
                           HasSubstr(" more\n")));
  EXPECT_EQ(std::ranges::count(table, '\n'), 3);
  EXPECT_LT(table.size(), 2000u);
}

TEST(Refusals, TheDocumentSaysOfATenantWhatThatOfTheTenantsSays) {
  SchedulerFigures scheduler;
  scheduler.folder = "/run/gpu";
  scheduler.speaks_3_3 = scheduler.speaks_3_4 = true;
  scheduler.allocations = {Tenant("p")};
  scheduler.allocations[0].memory_refused_count = 1;
  scheduler.allocations[0].slots = 3;
  FaultsOf(&scheduler.allocations[0], control::Fault::kLongKernel) = 2;
  const Json json = Json::parse(FormatAllRefusals(kNowhere, {scheduler}, Format::kJson));
  ASSERT_EQ(json["tenants"].size(), 1u) << json;
  EXPECT_EQ(json["tenants"][0], JsonOfTenant({&scheduler, &scheduler.allocations[0]}));
  EXPECT_EQ(json["tenants"][0]["slots"], 3);
  EXPECT_EQ(json["tenants"][0]["faults"]["long_kernel"], 2);
}

TEST(Refusals, AnOlderSchedulersDocumentHasWhatItKnows) {
  SchedulerFigures scheduler;
  scheduler.folder = "/run/gpu";
  scheduler.allocations = {Tenant("p")};
  scheduler.allocations[0].memory_refused_count = 1;
  const Json json = Json::parse(FormatAllRefusals(kNowhere, {scheduler}, Format::kJson));
  ASSERT_EQ(json["tenants"].size(), 1u) << json;
  EXPECT_EQ(json["tenants"][0]["memory_refusals"], 1);
  EXPECT_EQ(json["tenants"][0]["gpu"], "gpu");
  EXPECT_FALSE(json["tenants"][0].contains("faults"));
}

}  // namespace
}  // namespace gpuloom::run
