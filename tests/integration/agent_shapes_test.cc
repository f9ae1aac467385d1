// SPDX-License-Identifier: Apache-2.0
// A resource for each shape of several slots: the agent between the kubelet stand-in and real schedulers on software GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "agent/metrics/testing/http.h"
#include "tests/fake_kubelet/allocation_report.h"
#include "tests/fake_kubelet/replica_set.h"
#include "tests/integration/agent_process.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{60};
const char kTwo[] = "gpuloom.io/gpu-x2";
const char kFour[] = "gpuloom.io/gpu-x4";

class AgentShapes : public ::testing::Test {
 protected:
  void Start() {
    ASSERT_TRUE(node_.kubelet().Start().ok());
    StartAgent();
  }
  void StartAgent() {
    node_.StartAgent(arguments_);
    ASSERT_TRUE(node_.WaitForLog("agent: ready")) << node_.AgentLog();
  }
  absl::StatusOr<FakePod> Admit(const std::string& name, int count, const std::string& resource) {
    return node_.kubelet().Admit({"a", name, {{"main", count, false, resource}}});
  }
  absl::StatusOr<FakeContainer> TryRun(const std::string& name, int count,
                                       const std::string& resource = {}) {
    const auto pod = Admit(name, count, resource);
    if (!pod.ok()) return pod.status();
    return node_.kubelet().PrepareStart("a", name, "main");
  }
  FakeContainer Run(const std::string& name, int count, const std::string& resource = {}) {
    const auto container = TryRun(name, count, resource);
    EXPECT_TRUE(container.ok()) << container.status() << "\n" << node_.AgentLog();
    return container.ok() ? *container : FakeContainer{};
  }
  // What the cluster's scheduler may place: single slots, x2, x4.
  bool WaitForFree(size_t singles, size_t twos, size_t fours) {
    const bool came = node_.WaitFor([&] {
      FakeKubelet& kubelet = node_.kubelet();
      return kubelet.free_devices() == singles && kubelet.free_devices(kTwo) == twos &&
             kubelet.free_devices(kFour) == fours;
    });
    if (!came) {
      ADD_FAILURE() << node_.kubelet().free_devices() << ", " << node_.kubelet().free_devices(kTwo)
                    << ", " << node_.kubelet().free_devices(kFour) << " are free, not " << singles
                    << ", " << twos << ", " << fours << "\n"
                    << node_.AgentLog();
    }
    return came;
  }
  uint64_t Quota(const FakeContainer& container) {
    const auto state = AskScheduler(container);
    return state.has_value() ? state->memory_quota_bytes : 0;
  }
  void Remove(const std::string& name) { node_.kubelet().RemovePod("a", name); }

  AgentNode node_{2, 10};
  // Longer than this process stands still between its kubelet's Allocate and the list that has the pod.
  std::vector<std::string> arguments_ = {"--slot-shapes",     "2,4", "--grace-seconds", "0",
                                         "--missing-seconds", "3"};
};

// The case for which there are shapes: the node has enough slots, and no GPU has.
TEST_F(AgentShapes, APodThatFitsOnNoGpuWaitsInsteadOfFailing) {
  Start();
  ASSERT_TRUE(WaitForFree(20, 10, 4));
  Run("one", 7);
  ASSERT_TRUE(WaitForFree(13, 6, 2));
  Run("two", 7);
  ASSERT_TRUE(WaitForFree(6, 2, 0)) << "no place: the cluster's scheduler leaves the pod pending";
  const auto refused = TryRun("single-slots", 4);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("no GPU has 4 free slots: 3+3 (gpuloom.io/gpu-x4: 1 would wait for them), "
                        "which is unexpected"));
  Remove("one");
  ASSERT_TRUE(WaitForFree(13, 6, 2));
  Run("four", 1, kFour);
  ASSERT_TRUE(WaitForFree(9, 4, 1));
}

// As a real cluster did it: 16 failed pods in 20 s.
TEST_F(AgentShapes, AControllerMakesFailedPodsWithoutEndAndWithAShapeOneThatIsPending) {
  Start();
  Run("one", 7);
  Run("two", 7);
  ASSERT_TRUE(WaitForFree(6, 2, 0));
  FakeReplicaSet singles(&node_.kubelet(), {"a", "singles", {{"main", 4}}});
  FakeReplicaSet shape(&node_.kubelet(), {"a", "shape", {{"main", 1, false, kFour}}});
  for (int i = 0; i < 16; ++i) {
    singles.Sync();
    shape.Sync();
  }
  ASSERT_EQ(singles.failed().size(), 16u);
  for (const FakePodStatus& failed : singles.failed()) {
    EXPECT_EQ(failed.phase, "Failed");
    EXPECT_EQ(failed.reason, "UnexpectedAdmissionError");
    // As docs/operations.md quotes it.
    EXPECT_EQ(failed.message,
              "Pod was rejected: Allocate failed due to device plugin GetPreferredAllocation rpc "
              "failed with err: rpc error: code = FailedPrecondition desc = no GPU has 4 free "
              "slots: 3+3 (gpuloom.io/gpu-x4: 1 would wait for them), which is unexpected");
  }
  EXPECT_TRUE(shape.failed().empty());
  EXPECT_EQ(shape.pending_because(), "0/1 nodes are available: 1 Insufficient gpuloom.io/gpu-x4.");
  int status = -1;
  EXPECT_TRUE(node_.WaitFor([&] {
    return node_.RunGpuloom({"refusals"}, &status).find("would wait for them") != std::string::npos;
  }));

  Remove("one");
  ASSERT_TRUE(WaitForFree(13, 6, 2));
  shape.Sync();
  EXPECT_TRUE(shape.is_running());
  EXPECT_EQ(shape.pending_because(), "");
  singles.Sync();
  EXPECT_TRUE(singles.is_running());
}

TEST_F(AgentShapes, AShapeIsSoManySlotsAndItsPodIsKnownEverywhere) {
  Start();
  const FakeContainer shape = Run("train", 1, kFour);
  EXPECT_EQ(shape.device_ids.size(), 1u);
  ASSERT_TRUE(WaitForFree(16, 8, 3));
  const FakeContainer singles = Run("singles", 4);
  EXPECT_EQ(Quota(shape), Quota(singles));
  EXPECT_NE(Quota(shape), 0u);
  const auto state = AskScheduler(shape);
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->slots, 4u);
  EXPECT_STREQ(state->pod, "train");
  int status = -1;
  EXPECT_THAT(node_.RunGpuloom({"tenants", "-o", "json"}, &status),
              AllOf(HasSubstr("\"train\""), HasSubstr("\"slots\": 4")));
  EXPECT_THAT(node_.RunGpuloom({"top", "--once", "-o", "json"}, &status), HasSubstr("\"train\""));
  // Both are on one GPU: the fullest that has room.
  EXPECT_THAT(node_.RunGpuloom({"gpus", "-o", "json"}, &status), HasSubstr("\"held\": 8"))
      << node_.AgentLog();
  EXPECT_EQ(status, 0);
  // A restart of the container asks nobody but PreStartContainer.
  EXPECT_TRUE(node_.kubelet().PrepareStart("a", "train", "main").ok());
}

TEST_F(AgentShapes, WhoComesAfterAPodGetsItsPlaceAtOnce) {
  Start();
  for (const char* name : {"a", "b", "c", "d"}) Run(name, 1, kFour);
  ASSERT_TRUE(WaitForFree(4, 2, 0));
  EXPECT_FALSE(TryRun("e", 1, kFour).ok());
  Remove("b");
  Run("e", 1, kFour);
  ASSERT_TRUE(WaitForFree(4, 2, 0));
  // Without a successor its slots are everybody's, once the agent is sure that it has ended.
  Remove("a");
  ASSERT_TRUE(WaitForFree(8, 4, 1));
}

TEST_F(AgentShapes, WhatIsPromisedIsPromisedOnceWhateverTheKubeletBelieves) {
  Start();
  const FakeContainer shape = Run("shape", 1, kFour);
  const std::string id = *shape.device_ids.begin();
  const std::string gpu = id.substr(0, id.find("::"));
  const auto single =
      node_.kubelet().AdmitWithDevices({"a", "late", {{"main", 1}}}, {{gpu + "::9"}});
  EXPECT_THAT(std::string(single.status().message()),
              AllOf(HasSubstr(gpu + "::9 is a part of " + id),
                    HasSubstr("rpc error: code = FailedPrecondition")));
  ASSERT_TRUE(
      node_.kubelet()
          .AdmitWithDevices({"a", "more", {{"main", 3}}}, {{gpu + "::0", gpu + "::1", gpu + "::2"}})
          .ok());
  const auto second = node_.kubelet().AdmitWithDevices({"a", "later", {{"main", 1, false, kFour}}},
                                                       {{gpu + "::x4-1"}});
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("has 3 free slots, fewer than gpuloom.io/gpu-x4 is"));
  EXPECT_THAT(std::string(TryRun("double", 2, kFour).status().message()),
              HasSubstr("asks for gpuloom.io/gpu-x4: 2, and can have one only"));
  int status = -1;
  EXPECT_TRUE(node_.WaitFor([&] {
    return node_.RunGpuloom({"refusals"}, &status).find("fewer than gpuloom.io/gpu-x4 is") !=
           std::string::npos;
  }));
}

TEST_F(AgentShapes, RestartsOfAgentAndKubeletChangeNothing) {
  Start();
  const FakeContainer shape = Run("shape", 1, kFour);
  const FakeContainer pair = Run("pair", 1, kTwo);
  ASSERT_TRUE(WaitForFree(14, 7, 3));
  const uint64_t quota = Quota(shape);

  node_.KillAgent(SIGKILL);
  StartAgent();
  ASSERT_TRUE(WaitForFree(14, 7, 3));
  EXPECT_EQ(Quota(shape), quota);
  EXPECT_TRUE(node_.kubelet().PrepareStart("a", "shape", "main").ok());

  node_.kubelet().Stop();
  ASSERT_TRUE(node_.kubelet().Start().ok());
  ASSERT_TRUE(WaitForFree(14, 7, 3));
  EXPECT_TRUE(node_.kubelet().PrepareStart("a", "pair", "main").ok());

  ASSERT_TRUE(node_.ReplaceAgent(arguments_)) << node_.AgentLog();
  ASSERT_TRUE(WaitForFree(14, 7, 3));
  Run("another", 1, kFour);
  EXPECT_EQ(Quota(shape), quota);
  EXPECT_EQ(Quota(pair) * 2, quota);

  // A shape that is offered no more: who has one keeps it, and its slots stay taken.
  node_.KillAgent(SIGKILL);
  arguments_[1] = "2";
  StartAgent();
  EXPECT_TRUE(node_.WaitFor([&] { return node_.kubelet().free_devices() == 10; }))
      << node_.AgentLog();
  EXPECT_EQ(Quota(shape), quota);
}

TEST_F(AgentShapes, AnUpdateOfTheAgentKeepsEveryResourceWithEveryKubelet) {
  for (const auto takeover :
       {FakeKubelet::Takeover::kByEndpoint, FakeKubelet::Takeover::kBySocket}) {
    AgentNode node(1, 10, {}, takeover);
    ASSERT_TRUE(node.kubelet().Start().ok());
    node.StartAgent(arguments_);
    ASSERT_TRUE(node.WaitForLog("agent: ready")) << node.AgentLog();
    for (const char* name : {"before", "after"}) {
      ASSERT_TRUE(node.kubelet().Admit({"a", name, {{"main", 1, false, kFour}}}).ok());
      ASSERT_TRUE(node.kubelet().PrepareStart("a", name, "main").ok()) << node.AgentLog();
      ASSERT_TRUE(node.ReplaceAgent(arguments_)) << node.AgentLog();
    }
    EXPECT_TRUE(node.WaitFor([&] {
      return node.kubelet().free_devices() == 2 && node.kubelet().free_devices(kTwo) == 1 &&
             node.kubelet().free_devices(kFour) == 0;
    })) << node.AgentLog();
  }
}

TEST_F(AgentShapes, ADrainedNodeOffersNoShapes) {
  Start();
  Run("shape", 1, kFour);
  ASSERT_TRUE(WaitForFree(16, 8, 3));
  int status = -1;
  EXPECT_THAT(node_.RunGpuloom({"drain"}, &status), HasSubstr("shape"));
  ASSERT_TRUE(WaitForFree(0, 0, 0));
  EXPECT_FALSE(TryRun("new", 1, kFour).ok());
  EXPECT_TRUE(node_.kubelet().PrepareStart("a", "shape", "main").ok()) << "it was there before";
  Remove("shape");
  EXPECT_EQ((node_.RunGpuloom({"drain", "--wait", "--timeout", "60s"}, &status), status), 0);
  (void)node_.RunGpuloom({"drain", "--undo"}, &status);
  ASSERT_TRUE(WaitForFree(20, 10, 4));
}

TEST_F(AgentShapes, ASickGpuHasNoPlaces) {
  Start();
  node_.LoseGpus(true);
  Run("first", 1, kTwo);  // its executor does not start
  ASSERT_TRUE(node_.WaitFor([&] { return node_.kubelet().free_devices(kFour) <= 2; }))
      << node_.AgentLog();
  node_.LoseGpus(false);
  ASSERT_TRUE(WaitForFree(18, 9, 4));
}

TEST_F(AgentShapes, WithFewerSlotsAGpuHasFewerPlacesAndWhoIsThereKeepsTheirs) {
  Start();
  const FakeContainer one = Run("one", 1, kFour);
  const FakeContainer two = Run("two", 1, kFour);
  ASSERT_TRUE(WaitForFree(12, 6, 2));
  const uint64_t quota = Quota(one);
  node_.KillAgent(SIGKILL);
  node_.SetSlots(5);
  StartAgent();
  // On the first GPU, 8 of what were 10 slots are held; what is left there is one of 5.
  ASSERT_TRUE(WaitForFree(6, 2, 1));
  EXPECT_EQ(Quota(one), quota);
  EXPECT_EQ(Quota(two), quota);
  EXPECT_TRUE(node_.kubelet().PrepareStart("a", "one", "main").ok());
  Remove("one");
  Remove("two");
  ASSERT_TRUE(WaitForFree(10, 4, 2));
  EXPECT_GE(Quota(Run("new", 1, kFour)), 2 * quota - (uint64_t{8} << 20));
}

TEST_F(AgentShapes, TheMetricsCountSlotsAndSeeEveryResource) {
  arguments_.insert(arguments_.end(), {"--metrics-address", "127.0.0.1:0"});
  Start();
  ASSERT_TRUE(node_.WaitForLog("plugin: registered gpuloom.io/gpu-x4")) << node_.AgentLog();
  Run("train", 1, kFour);
  const int port = node_.MetricsPort();
  ASSERT_NE(port, 0) << node_.AgentLog();
  std::string text;
  EXPECT_TRUE(node_.WaitFor([&] {
    text = HttpGet(port, "/metrics");
    return text.find("pod=\"train\"") != text.npos;
  })) << text;
  EXPECT_THAT(text, ContainsRegex("gpuloom_tenant_slots.*pod=\"train\".* 4\n"));
  EXPECT_THAT(text, ContainsRegex("gpuloom_gpu_slots_allocated.* 4\n"));
  EXPECT_THAT(text, HasSubstr("gpuloom_kubelet_watches 1\n"));
  EXPECT_THAT(text, HasSubstr("gpuloom_kubelet_registrations_total 3\n"));
  EXPECT_EQ(node_.RunAgentProbe("--probe-ready"), "");
}

}  // namespace
}  // namespace gpuloom
