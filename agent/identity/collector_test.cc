// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace gpuloom {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

using std::chrono::minutes;
using std::chrono::seconds;

const Clock::Time kStart{seconds(1'700'000'000)};

// With a kubelet that has been running for long.
Collector Make() {
  Collector collector({});
  collector.KubeletSeen(kStart - minutes(60));
  return collector;
}

Allocation Make(const char* name, std::vector<std::string> ids, Clock::Time created) {
  Allocation allocation;
  allocation.name = name;
  allocation.device_ids = std::move(ids);
  allocation.created_at = created;
  return allocation;
}

Allocation Bound(Allocation allocation, const char* pod_namespace, const char* pod) {
  Binding binding;
  binding.owner = {pod_namespace, pod, "main"};
  binding.trust_domain = "d";
  binding.bound_at = allocation.created_at + seconds(2);
  allocation.binding = binding;
  return allocation;
}

ContainerDevices Held(const char* pod_namespace, const char* pod, std::vector<std::string> ids) {
  return {{pod_namespace, pod, "main"}, std::move(ids)};
}

TEST(Collector, WhatIsGoneForLongEnoughIsOver) {
  Collector collector = Make();
  const std::vector<Allocation> all = {Bound(Make("x", {"0"}, kStart), "a", "p")};
  EXPECT_THAT(collector.Judge(all, {Held("a", "p", {"0"})}, kStart + minutes(6)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(7)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(7) + seconds(59)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(8)), ElementsAre("x"));
}

TEST(Collector, SeenAgainInBetweenStartsAnew) {
  Collector collector = Make();
  const std::vector<Allocation> all = {Bound(Make("x", {"0"}, kStart), "a", "p")};
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(7)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {Held("a", "p", {"0"})}, kStart + minutes(8)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(9)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(10)), ElementsAre("x"));
}

// A pod of a second is not kept for minutes.
TEST(Collector, WhatHadItsPodIsJudgedInItsFirstMinutesToo) {
  Collector collector = Make();
  const std::vector<Allocation> all = {Bound(Make("x", {"0"}, kStart), "a", "p")};
  EXPECT_THAT(collector.Judge(all, {Held("a", "p", {"0"})}, kStart + seconds(3)), IsEmpty());
  EXPECT_FALSE(collector.IsGone("x"));
  EXPECT_THAT(collector.Judge(all, {}, kStart + seconds(5)), IsEmpty());
  EXPECT_TRUE(collector.IsGone("x"));
  EXPECT_THAT(collector.Judge(all, {}, kStart + seconds(64)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + seconds(65)), ElementsAre("x"));
  EXPECT_TRUE(collector.IsGone("x")) << "until it is removed";
  // It is not in the list of a kubelet that has just started, which shows nothing.
  collector.KubeletSeen(kStart + seconds(66));
  EXPECT_THAT(collector.Judge(all, {}, kStart + seconds(67)), IsEmpty());
  EXPECT_FALSE(collector.IsGone("x"));
}

TEST(Collector, NothingWithoutAPodIsJudgedInItsFirstMinutes) {
  Collector collector = Make();
  const std::vector<Allocation> all = {Make("x", {"0"}, kStart)};
  EXPECT_THAT(collector.Judge(all, {}, kStart), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(4)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(5)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(6)), ElementsAre("x"));
}

TEST(Collector, ARestartedKubeletIsNotBelievedAtOnce) {
  Collector collector = Make();
  const std::vector<Allocation> all = {Bound(Make("x", {"0"}, kStart), "a", "p")};
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(60)), IsEmpty());
  collector.KubeletSeen(kStart + minutes(60));
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(62)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(65)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(66)), ElementsAre("x"));
}

TEST(Collector, WithoutAKubeletNothingIsJudged) {
  Collector collector({});
  const std::vector<Allocation> all = {Bound(Make("x", {"0"}, kStart), "a", "p")};
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(60)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(70)), IsEmpty());
  collector.KubeletSeen(kStart);
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(71)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(72)), ElementsAre("x"));
}

TEST(Collector, ARestartedAgentWaitsForTheMinuteOnly) {
  const std::vector<Allocation> all = {Bound(Make("x", {"0"}, kStart), "a", "p")};
  for (int agent = 0; agent < 3; ++agent) {
    Collector collector = Make();
    const Clock::Time start = kStart + minutes(10 + agent);
    EXPECT_THAT(collector.Judge(all, {}, start), IsEmpty());
    EXPECT_THAT(collector.Judge(all, {}, start + seconds(59)), IsEmpty());
    if (agent == 2) {
      EXPECT_THAT(collector.Judge(all, {}, start + seconds(60)), ElementsAre("x"));
    }
  }
}

TEST(Collector, WhatWasMadeInTheFutureIsOld) {
  Collector collector = Make();
  const std::vector<Allocation> all = {Bound(Make("x", {"0"}, kStart + minutes(6000)), "a", "p")};
  EXPECT_THAT(collector.Judge(all, {}, kStart), IsEmpty());
  EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(1)), ElementsAre("x"));
}

TEST(Collector, IdsThatPassedToAnotherPodDoNotKeepTheOldAllocation) {
  for (const char* next_pod : {"q", "p"}) {  // "p": a StatefulSet gives the same name again
    Collector collector = Make();
    const std::vector<Allocation> all = {
        Bound(Make("old", {"0"}, kStart), "a", "p"),
        Bound(Make("new", {"0"}, kStart + minutes(10)), "a", next_pod)};
    const std::vector<ContainerDevices> held = {Held("a", next_pod, {"0"})};
    EXPECT_THAT(collector.Judge(all, held, kStart + minutes(20)), ElementsAre("old")) << next_pod;
    EXPECT_TRUE(collector.IsGone("old"));
    EXPECT_FALSE(collector.IsGone("new"));
    // A kubelet that has just started, and shows nothing yet, makes no difference to that.
    collector.KubeletSeen(kStart + minutes(20));
    EXPECT_THAT(collector.Judge(all, {}, kStart + minutes(21)), ElementsAre("old")) << next_pod;
  }
}

TEST(Collector, AnUnboundOneLivesWhileAnyoneHoldsItsIds) {
  // The pod's init container runs for hours; the app container is allocated but not started.
  Collector collector = Make();
  const std::vector<Allocation> all = {Bound(Make("init1", {"0"}, kStart), "a", "p"),
                                       Make("init2", {"0", "1"}, kStart + seconds(1)),
                                       Bound(Make("app", {"0"}, kStart + seconds(1)), "a", "p")};
  const std::vector<ContainerDevices> held = {Held("a", "p", {"0"})};
  for (int minute = 6; minute < 200; ++minute) {
    EXPECT_THAT(collector.Judge(all, held, kStart + minutes(minute)), IsEmpty());
  }
}

TEST(Collector, AnUnboundOneGoesWhenItsIdsServeALaterPod) {
  Collector collector = Make();
  const std::vector<Allocation> all = {Make("never-started", {"0"}, kStart),
                                       Bound(Make("new", {"0"}, kStart + minutes(10)), "b", "q")};
  const std::vector<ContainerDevices> held = {Held("b", "q", {"0"})};
  EXPECT_THAT(collector.Judge(all, held, kStart + minutes(20)), IsEmpty());
  EXPECT_THAT(collector.Judge(all, held, kStart + minutes(21)), ElementsAre("never-started"));
}

TEST(DevicesLeft, ADeviceIsTheLatestContainersThatHasStarted) {
  std::vector<Allocation> all = {Bound(Make("init", {"0", "1", "2", "3"}, kStart), "a", "p"),
                                 Make("app", {"0", "1"}, kStart + seconds(1)),
                                 Bound(Make("other", {"4"}, kStart), "b", "q")};
  EXPECT_THAT(DevicesLeft(all), UnorderedElementsAre(Pair("init", 4), Pair("other", 1)));
  all[1] = Bound(all[1], "a", "p");
  EXPECT_THAT(DevicesLeft(all),
              UnorderedElementsAre(Pair("init", 2), Pair("app", 2), Pair("other", 1)));
  all.push_back(Bound(Make("next", {"2", "3"}, kStart + minutes(1)), "c", "r"));
  EXPECT_THAT(DevicesLeft(all), UnorderedElementsAre(Pair("init", 0), Pair("app", 2),
                                                     Pair("other", 1), Pair("next", 2)));
}

}  // namespace
}  // namespace gpuloom
