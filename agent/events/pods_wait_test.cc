// SPDX-License-Identifier: Apache-2.0
// Against the stand-in for an API server, over TLS.
#include "agent/events/pods_wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "agent/events/testing/api_server_fixture.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr char kSet[] = "/apis/apps/v1/namespaces/gpus/daemonsets/gpuloom-drain";
constexpr char kPods[] =
    "/api/v1/namespaces/gpus/pods?labelSelector=app.kubernetes.io/component%3Ddrain%2Crelease%3Dr";

// Time passes when someone sleeps, and something may happen then.
class EventfulClock : public Clock {
 public:
  Time Now() override { return now_ += per_look; }
  void SleepFor(Duration duration) override {
    now_ += duration;
    if (on_sleep) on_sleep();
  }
  std::function<void()> on_sleep;
  Duration per_look{};

 private:
  Time now_{};
};

class PodsWaitTest : public ApiServerFixture {
 protected:
  PodsWaitTest()
      : ApiServerFixture(
            {GPULOOM_PYTHON, GPULOOM_FAKE_API_SERVER},
            {{"token", "first"}, {"pods", Json::object()}, {"objects", Json::object()}}) {}
  void SetUp() override {
    ApiServerFixture::SetUp();
    std::ofstream(folder_ + "/account/namespace") << "gpus\n";
  }

  void Show(int nodes, int ready, int observed = 1) {
    state_["objects"][kSet] = {
        {"metadata", {{"generation", 1}}},
        {"spec",
         {{"selector",
           {{"matchLabels", {{"app.kubernetes.io/component", "drain"}, {"release", "r"}}}}}}},
        {"status",
         {{"observedGeneration", observed},
          {"desiredNumberScheduled", nodes},
          {"numberReady", ready}}}};
    WriteState();
  }
  static Json Pod(const std::string& name, const std::string& node, bool is_ready) {
    return {{"metadata", {{"name", name}}},
            {"spec", {{"nodeName", node}}},
            {"status",
             {{"conditions",
               {{{"type", "Initialized"}, {"status", "True"}},
                {{"type", "Ready"}, {"status", is_ready ? "True" : "False"}}}}}}};
  }
  absl::Status Wait() {
    return WaitForPods(
        {Server(), folder_ + "/account", "gpuloom-drain", std::chrono::seconds(20), &clock_},
        is_cancelled_);
  }

  EventfulClock clock_;
  std::atomic<bool> is_cancelled_ = false;
};

TEST_F(PodsWaitTest, EndsWhenAllAreReady) {
  Show(3, 1);
  int looks = 0;
  clock_.on_sleep = [&] { Show(3, ++looks < 5 ? 2 : 3); };
  EXPECT_EQ(Wait(), absl::OkStatus());
  EXPECT_EQ(looks, 5);
}

TEST_F(PodsWaitTest, AClusterWithoutSuchNodesIsDoneOnceItsControllerHasLooked) {
  Show(0, 0, /*observed=*/0);
  int looks = 0;
  clock_.on_sleep = [&] { Show(0, 0, ++looks < 3 ? 0 : 1); };
  EXPECT_EQ(Wait(), absl::OkStatus());
  EXPECT_EQ(looks, 3);
}

TEST_F(PodsWaitTest, WhenTheTimeIsOverEachNodeThatIsNotDoneIsNamedWithWhatItWaitsFor) {
  Show(4, 1);
  state_["objects"][kPods] = {{"items",
                               {Pod("drain-a", "node-a", true), Pod("drain-b", "node-b", false),
                                Pod("drain-c", "node-c", false), Pod("drain-d", "", false)}}};
  state_["objects"]["/api/v1/namespaces/gpus/pods/drain-b/log?container=work&tailLines=1"] =
      "waits for pods that hold slots: team-a/train-7 \x1b[2J\n";
  WriteState();
  const absl::Status status = Wait();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_EQ(std::string(status.message()),
            "gpuloom-drain: not done within 20 s on 3 of 4 nodes:\n"
            "node-b: waits for pods that hold slots: team-a/train-7 \\x1b[2J\n"
            "node-c: its pod drain-c has not begun: kubectl describe pod says why\n"
            "no node yet: its pod drain-d has not begun: kubectl describe pod says why");
}

TEST_F(PodsWaitTest, ASlowServerIsNotAskedForEachNodesLine) {
  Show(20, 0);
  Json pods = Json::array();
  for (int i = 0; i < 20; ++i) {
    const std::string number = std::to_string(i);
    pods.push_back(Pod("drain-" + number, "node-" + number, false));
  }
  state_["objects"][kPods] = {{"items", pods}};
  WriteState();
  clock_.per_look = std::chrono::seconds(4);
  const std::string message(Wait().message());
  EXPECT_THAT(message, AllOf(HasSubstr("on 20 of 20 nodes:\nnode-0: its pod drain-0 has not begun"),
                             HasSubstr("node-19: kubectl logs drain-19 says what it waits for")));
  std::ifstream log(folder_ + "/log");
  const std::string requests(std::istreambuf_iterator<char>(log), {});
  EXPECT_THAT(requests, HasSubstr("/pods/drain-0/log"));
  EXPECT_THAT(requests, Not(HasSubstr("/pods/drain-9/log")));
}

// Neither a right that is missing nor an answer of nonsense is taken for an end.
TEST_F(PodsWaitTest, WhatTheServerHasAgainstItIsSaid) {
  state_["status"] = 403;
  WriteState();
  EXPECT_THAT(std::string(Wait().message()),
              AllOf(HasSubstr("not done within 20 s"), HasSubstr(kSet), HasSubstr("status 403")));
  state_.erase("status");
  for (const Json& answer : {Json::array(), Json("text"), Json::object()}) {
    state_["objects"][kSet] = answer;
    WriteState();
    EXPECT_FALSE(Wait().ok()) << answer;
  }
  state_["objects"].erase(kSet);
  WriteState();
  EXPECT_THAT(std::string(Wait().message()), HasSubstr("status 404"));
}

TEST_F(PodsWaitTest, WithoutTheListOfPodsTheNumberOfNodesIsSaid) {
  Show(2, 1);
  EXPECT_THAT(std::string(Wait().message()),
              AllOf(HasSubstr("on 1 of 2 nodes: kubernetes: "), HasSubstr("status 404")));
}

TEST_F(PodsWaitTest, EndsWhenItIsTold) {
  Show(2, 1);
  clock_.on_sleep = [&] { is_cancelled_ = true; };
  EXPECT_TRUE(absl::IsCancelled(Wait()));
}

TEST_F(PodsWaitTest, OutsideOfAPodThatIsSaid) {
  fs::remove(folder_ + "/account/namespace");
  EXPECT_THAT(std::string(Wait().message()), HasSubstr("no namespace of a service account"));
}

}  // namespace
}  // namespace gpuloom
