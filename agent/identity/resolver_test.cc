// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/resolver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/testing/clock.h"

namespace gpuloom {
namespace {

using ::testing::HasSubstr;

ContainerDevices Held(const char* pod_namespace, const char* pod, const char* container,
                      std::vector<std::string> ids) {
  return {{pod_namespace, pod, container}, std::move(ids)};
}

TEST(MatchPod, ExactIdsNameTheContainer) {
  const auto match =
      MatchPod({Held("a", "p", "side", {"0"}), Held("a", "p", "main", {"2", "1"})}, {"1", "2"});
  ASSERT_TRUE(match.ok());
  EXPECT_EQ(**match, (PodContainer{"a", "p", "main"}));
}

TEST(MatchPod, AnInitContainerIsMatchedThroughThePodsOtherContainers) {
  // The init container has 0 and 1; the app container took over 0 only.
  const auto fewer =
      MatchPod({Held("a", "p", "main", {"0"}), Held("b", "q", "main", {"5"})}, {"0", "1"});
  EXPECT_EQ(**fewer, (PodContainer{"a", "p", ""}));
  const auto more = MatchPod({Held("a", "p", "main", {"0", "1", "2"})}, {"0", "1"});
  EXPECT_EQ(**more, (PodContainer{"a", "p", ""}));
}

TEST(MatchPod, AContainerThatAsksForTwoOfOurResourcesIsAnError) {
  ContainerDevices both = Held("a", "p", "main", {"x4-0", "1"});
  both.resources = {"gpuloom.io/gpu", "gpuloom.io/gpu-x4"};
  const auto match = MatchPod({Held("b", "q", "main", {"5"}), both}, {"1"});
  EXPECT_THAT(match.status().message(),
              HasSubstr("pod a/p, container main asks for gpuloom.io/gpu and gpuloom.io/gpu-x4"));
  EXPECT_EQ(**MatchPod({Held("b", "q", "main", {"5"}), both}, {"5"}),
            (PodContainer{"b", "q", "main"}))
      << "others are served";
}

TEST(MatchPod, NobodyIsAnEmptyAnswer) {
  const auto match = MatchPod({Held("a", "p", "main", {"0"})}, {"1"});
  ASSERT_TRUE(match.ok());
  EXPECT_FALSE(match->has_value());
}

TEST(MatchPod, TwoPodsAtOnceIsAContradiction) {
  const auto match =
      MatchPod({Held("a", "p", "main", {"0", "1"}), Held("b", "q", "main", {"1"})}, {"0", "1"});
  EXPECT_THAT(match.status().message(), HasSubstr("both a/p and b/q hold 0, 1"));
  // The same pod's name in another namespace is another pod.
  EXPECT_FALSE(
      MatchPod({Held("a", "p", "main", {"0"}), Held("b", "p", "main", {"0"})}, {"0"}).ok());
}

class ScriptedPodResources : public PodResources {
 public:
  absl::StatusOr<std::vector<ContainerDevices>> List() override {
    ++calls;
    if (calls <= failures) return absl::UnavailableError("kubelet: silent");
    if (calls <= failures + empties) return std::vector<ContainerDevices>{};
    return answer;
  }
  int failures = 0;
  int empties = 0;
  int calls = 0;
  std::vector<ContainerDevices> answer;
};

TEST(Resolver, AsksAgainUntilThePodIsThere) {
  TestingClock clock;
  ScriptedPodResources resources;
  resources.failures = 2;
  resources.empties = 3;
  resources.answer = {Held("a", "p", "main", {"0"})};
  EXPECT_EQ(*Resolver(&resources, &clock).Resolve({"0"}), (PodContainer{"a", "p", "main"}));
  EXPECT_EQ(resources.calls, 6);
}

TEST(Resolver, RefusesTheUnknownByName) {
  TestingClock clock;
  ScriptedPodResources resources;
  const auto start = clock.Now();
  const auto nobody = Resolver(&resources, &clock).Resolve({"gpu-a::0", "gpu-a::1"});
  EXPECT_THAT(nobody.status().message(), HasSubstr("no pod that holds gpu-a::0, gpu-a::1"));
  EXPECT_THAT(nobody.status().message(), HasSubstr("init container"));
  EXPECT_LE(clock.Now() - start, std::chrono::seconds(5));

  resources.failures = 1000000;
  EXPECT_THAT(Resolver(&resources, &clock).Resolve({"x"}).status().message(),
              HasSubstr("kubelet: silent"));
}

}  // namespace
}  // namespace gpuloom
