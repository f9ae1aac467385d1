// SPDX-License-Identifier: Apache-2.0
#include "agent/run/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom::run {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kMiB = uint64_t{1} << 20;

control::AllocationState Tenant(const std::string& name, uint64_t compute_ns, uint64_t kernels) {
  control::AllocationState state{};
  control::SetText(state.name, ("allocation-" + name).c_str());
  control::SetText(state.pod_namespace, "team");
  control::SetText(state.pod, name.c_str());
  control::SetText(state.container, "main");
  state.bound = 1;
  state.sessions = 1;
  state.memory_quota_bytes = 512 * kMiB;
  state.time.compute_ns = compute_ns;
  state.kernels_launched = kernels;
  return state;
}

SchedulerFigures Scheduler(uint64_t running_ns, std::vector<control::AllocationState> tenants) {
  SchedulerFigures figures;
  figures.folder = "/gpus/0";
  figures.speaks_3_3 = true;
  figures.memory_bytes = 1024 * kMiB;
  control::SetText(figures.gpu.uuid, "GPU-01234567-89ab-cdef-0123-456789abcdef");
  control::SetText(figures.gpu.name, "Model");
  figures.gpu.running_ns = running_ns;
  for (const auto& tenant : tenants) {
    figures.gpu.busy.compute_ns += tenant.time.compute_ns;
    figures.gpu.memory_used_bytes += tenant.memory_used_bytes;
  }
  figures.allocations = std::move(tenants);
  return figures;
}

std::vector<std::string> Pods(const TopView& view) {
  std::vector<std::string> pods;
  for (const TopTenant& tenant : view.tenants) pods.push_back(tenant.pod);
  return pods;
}

TEST(TopView, AGpuWhoseSchedulerIsSilentHasARowWithoutFigures) {
  TopView view = Compare({}, {Scheduler(kSecondNs, {})}, TopOrder::kTime);
  SchedulerFigures silent;
  silent.folder = "/state/gpus/GPU-00000000-89ab-cdef-0123-456789abcdef";
  silent.answers = false;
  AddSilent({silent}, &view);
  EXPECT_THAT(FormatTop(view),
              ::testing::ContainsRegex("\nGPU-0000[^ ]* +- +- +- +- +- +- +- +- +-\nGPU-0123"));
  const Json gpu = JsonOf(view)["gpus"][0];
  EXPECT_EQ(gpu["gpu"], "GPU-00000000-89ab-cdef-0123-456789abcdef");
  EXPECT_EQ(gpu["tenants"], nullptr);
  EXPECT_EQ(gpu["memory_bytes"], nullptr);
}

TEST(TopView, SharesOfTheTimeBetweenTheLooks) {
  const auto before = Scheduler(10 * kSecondNs, {Tenant("a", 7 * kSecondNs, 100)});
  auto a = Tenant("a", 8 * kSecondNs, 150);
  a.time.queue_ns = kSecondNs / 2;
  a.time.throttled_ns = kSecondNs / 4;
  const auto now = Scheduler(12 * kSecondNs, {a, Tenant("new", kSecondNs / 2, 20)});
  const TopView view = Compare({before}, {now}, TopOrder::kTime);
  EXPECT_EQ(view.seconds, 2.0);
  ASSERT_EQ(view.gpus.size(), 1u);
  EXPECT_EQ(view.gpus[0].busy, 0.75);
  ASSERT_THAT(Pods(view), ElementsAre("a", "new"));
  EXPECT_EQ(view.tenants[0].gpu_share, 0.5);
  EXPECT_EQ(view.tenants[0].kernels_per_second, 25.0);
  EXPECT_EQ(view.tenants[0].queued, 0.25);
  EXPECT_EQ(view.tenants[0].throttled, 0.125);
  EXPECT_EQ(view.tenants[1].gpu_share, 0.25) << "it began between the looks";
  EXPECT_EQ(view.tenants[1].kernels_per_second, 10.0);
}

TEST(TopView, AReplacedSchedulerCountsFromItsStart) {
  const auto before = Scheduler(100 * kSecondNs, {Tenant("a", 70 * kSecondNs, 1000)});
  const auto now = Scheduler(1 * kSecondNs, {Tenant("a", kSecondNs / 2, 30)});
  const TopView view = Compare({before}, {now}, TopOrder::kTime);
  EXPECT_EQ(view.seconds, 1.0);
  EXPECT_EQ(view.gpus[0].busy, 0.5);
  EXPECT_EQ(view.tenants[0].gpu_share, 0.5);
  EXPECT_EQ(view.tenants[0].kernels_per_second, 30.0);
}

TEST(TopView, WhatIsNotKnownIsNotMadeUp) {
  const auto now = Scheduler(1 * kSecondNs, {Tenant("a", kSecondNs / 2, 30)});
  TopView view = Compare({}, {now}, TopOrder::kTime);
  EXPECT_EQ(view.seconds, std::nullopt);
  EXPECT_EQ(view.gpus[0].busy, std::nullopt);
  EXPECT_EQ(view.tenants[0].gpu_share, std::nullopt);
  EXPECT_EQ(JsonOf(view)["tenants"][0]["gpu_share"], nullptr);

  SchedulerFigures old = now;
  old.speaks_3_3 = false;
  view = Compare({old}, {old}, TopOrder::kTime);
  EXPECT_EQ(view.gpus[0].gpu, "0") << "its folder";
  EXPECT_EQ(view.gpus[0].memory_used_bytes, std::nullopt);
  EXPECT_EQ(view.tenants[0].kernels_per_second, std::nullopt);
  EXPECT_EQ(Compare({now}, {now}, TopOrder::kTime).tenants[0].gpu_share, std::nullopt)
      << "no time has passed";
}

TEST(TopView, EveryOrderPutsTheMostFirst) {
  auto a = Tenant("a", 1, 3), b = Tenant("b", 2, 1), c = Tenant("c", 3, 2);
  b.memory_used_bytes = 5;
  b.time.queue_ns = 1;
  a.time.queue_ns = 2;
  const auto before = Scheduler(0, {}), now = Scheduler(kSecondNs, {c, b, a});
  const auto sorted = [&](TopOrder order) { return Pods(Compare({before}, {now}, order)); };
  EXPECT_THAT(sorted(TopOrder::kTime), ElementsAre("c", "b", "a"));
  EXPECT_THAT(sorted(TopOrder::kMemory), ElementsAre("b", "a", "c"));
  EXPECT_THAT(sorted(TopOrder::kKernels), ElementsAre("a", "c", "b"));
  EXPECT_THAT(sorted(TopOrder::kWait), ElementsAre("a", "b", "c"));
  EXPECT_THAT(sorted(TopOrder::kName), ElementsAre("a", "b", "c"));
}

TEST(TopView, GpusAreShortenedAsFarAsTheyStayApart) {
  auto one = Scheduler(2 * kSecondNs, {Tenant("a", 1, 1)}), other = one;
  EXPECT_THAT(FormatTop(Compare({one}, {one}, TopOrder::kTime)),
              MatchesRegex("GPU +NAME[^\n]*\nGPU-01234567… +Model [^\n]*\n\n"
                           "NAMESPACE [^\n]*\nteam +a +main +GPU-01234567… [^\n]*runs\n"));
  other.folder = "/gpus/1";
  control::SetText(other.gpu.uuid, "GPU-01234567-89ab-cdef-ffff-456789abcdef");
  const std::string text = FormatTop(Compare({}, {one, other}, TopOrder::kTime));
  EXPECT_THAT(text, HasSubstr("GPU-01234567-89ab-cdef-0…"));
  EXPECT_THAT(text, HasSubstr("GPU-01234567-89ab-cdef-f…"));
}

TEST(TopView, Malicious_NamesDoNotReachTheTerminalAsTheyAre) {
  auto tenant = Tenant(
      "x\x1b[2J\x9b"
      "2J\xc2\x9b"
      "2J\n",
      0, 0);
  control::SetText(tenant.container, "\x1b]0;title\x07");
  const auto now = Scheduler(kSecondNs, {tenant});
  const TopView view = Compare({}, {now}, TopOrder::kTime);
  for (const std::string& text : {FormatTop(view), FormatDocument(JsonOf(view), Format::kJson),
                                  FormatDocument(JsonOf(view), Format::kYaml)}) {
    EXPECT_THAT(text, Not(HasSubstr("\x1b")));
    EXPECT_THAT(text, Not(HasSubstr("\x07")));
    EXPECT_THAT(text, Not(HasSubstr("\x9b")));
  }
}

}  // namespace
}  // namespace gpuloom::run
