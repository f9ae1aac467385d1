// SPDX-License-Identifier: Apache-2.0
// What happens to tenants, as whoever runs their pods reads it: from a CUDA program on the software GPU by way of executor,
// scheduler and agent to the stand-in for an API server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "agent/events/event_book.h"
#include "agent/metrics/testing/http.h"
#include "tests/integration/agent_tenant_fixture.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using SteadyClock = std::chrono::steady_clock;

// More pods than a namespace may have events posted at once.
constexpr int kNoisyPods = 30;
static_assert(kNoisyPods > static_cast<int>(EventBook::kAtOnce));

class AgentEvents : public AgentTenant {
 protected:
  AgentEvents() : AgentTenant(1, 40) {}
  void SetUp() override {
    for (const char* name : {"team-a/p", "team-a/neighbour", "team-b/q"}) pods_[name] = Pod(name);
    for (int i = 0; i < kNoisyPods; ++i) pods_["noisy/" + Noisy(i)] = Pod("noisy/" + Noisy(i));
    arguments_ = node_.StartApiServer(pods_.dump());
    arguments_.insert(arguments_.end(), {"--metrics-address", "127.0.0.1:0"});
    AgentTenant::SetUp();
  }
  std::vector<std::string> AgentArguments() const override { return arguments_; }

  static Json Pod(const std::string& name) {
    return {{"uid", "uid-of-" + name}, {"node", "node-1"}};
  }
  static std::string Noisy(int number) { return "n" + std::to_string(number); }
  void RunTenant(const FakeContainer& container, const std::vector<std::string>& habit) {
    const Ran ran = Run(container, "gpuloom-tenant", habit);
    EXPECT_EQ(ran.result.exit_code, 0) << ran.output << node_.AgentLog();
  }

  // What the API server took, in its order.
  std::vector<Json> Taken() const {
    std::vector<Json> taken;
    std::istringstream log(node_.ApiServerLog());
    for (std::string line; std::getline(log, line);) {
      Json request = Json::parse(line, nullptr, false);
      if (!request.is_object() || request["status"].get<int>() / 100 != 2) continue;
      if (request["method"] == "POST" || request["method"] == "PATCH") {
        taken.push_back(std::move(request));
      }
    }
    return taken;
  }
  // The events of a pod with this reason, as they stand.
  std::vector<Json> Events(const std::string& pod, const std::string& reason) const {
    std::map<std::string, Json> events;  // by their path
    for (const Json& request : Taken()) {
      const std::string path = request["path"];
      const Json& body = request["body"];
      if (request["method"] == "POST") {
        events[path + "/" + body["metadata"]["name"].get<std::string>()] = body;
      } else {
        events[path].update(body);
      }
    }
    std::vector<Json> found;
    for (const auto& [path, event] : events) {
      const Json& about = event["involvedObject"];
      if (about.value("namespace", "") + "/" + about.value("name", "") == pod &&
          event["reason"] == reason) {
        found.push_back(event);
      }
    }
    return found;
  }
  bool WaitForEvent(const std::string& pod, const std::string& reason) const {
    return node_.WaitFor([&] { return !Events(pod, reason).empty(); });
  }
  size_t PostsOf(const std::string& pod_namespace) const {
    const std::string path = "/api/v1/namespaces/" + pod_namespace + "/events";
    size_t posts = 0;
    for (const Json& request : Taken())
      posts += request["path"].get<std::string>().starts_with(path);
    return posts;
  }

  std::vector<std::string> arguments_;
  Json pods_;  // of the API server
};

TEST_F(AgentEvents, AFaultAndARefusalAreEventsOfThePodThatHadThem) {
  const FakeContainer p = Admit("team-a", "p");
  const FakeContainer q = Admit("team-b", "q");
  testing::Process neighbour = Start(Admit("team-a", "neighbour"), {"hold", "1"});
  ASSERT_TRUE(neighbour.ReadLine("ready").has_value());

  RunTenant(q, {"refused", "2048"});
  RunTenant(p, {"fault"});
  ASSERT_TRUE(WaitForEvent("team-a/p", "GpuFault")) << node_.AgentLog() << node_.ApiServerLog();
  const Json fault = Events("team-a/p", "GpuFault").at(0);
  EXPECT_EQ(fault["involvedObject"]["kind"], "Pod");
  EXPECT_EQ(fault["involvedObject"]["uid"], "uid-of-team-a/p");
  EXPECT_EQ(fault["involvedObject"]["fieldPath"], "spec.containers{main}");
  EXPECT_THAT(fault["message"].get<std::string>(),
              AllOf(HasSubstr("1 process lost the device"), HasSubstr("on GPU GPU-"),
                    HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700) by kernel store")));
  EXPECT_EQ(fault["type"], "Warning");
  EXPECT_EQ(fault["count"], 1);
  EXPECT_EQ(fault["source"]["host"], "node-1");

  ASSERT_TRUE(WaitForEvent("team-b/q", "GpuMemoryRefused")) << node_.ApiServerLog();
  const Json refusal = Events("team-b/q", "GpuMemoryRefused").at(0);
  EXPECT_EQ(refusal["involvedObject"]["uid"], "uid-of-team-b/q");
  EXPECT_THAT(refusal["message"].get<std::string>(),
              ContainsRegex("1 request for GPU memory refused, beyond its quota of [0-9]+MiB"));

  // Of the same trust domain: it is told what it lost, and not whose kernel it was.
  ASSERT_TRUE(WaitForEvent("team-a/neighbour", "GpuExecutorLost")) << node_.ApiServerLog();
  EXPECT_EQ(Events("team-a/neighbour", "GpuExecutorLost")
                .at(0)["message"]
                .get<std::string>()
                .find("store"),
            std::string::npos);
  for (const char* pod : {"team-a/neighbour", "team-b/q"}) {
    EXPECT_THAT(Events(pod, "GpuFault"), ::testing::IsEmpty()) << pod;
  }
  EXPECT_THAT(Events("team-b/q", "GpuExecutorLost"), ::testing::IsEmpty());

  const int port = node_.MetricsPort();
  std::string metrics;
  EXPECT_TRUE(node_.WaitFor([&] {
    metrics = HttpGet(port, "/metrics");
    return metrics.find("\ngpuloom_events_posted_total " + std::to_string(Taken().size()) + "\n") !=
           std::string::npos;
  })) << metrics;
  EXPECT_GE(Taken().size(), 3u);
  EXPECT_THAT(metrics, HasSubstr("\ngpuloom_events_dropped_total 0\n"));
}

TEST_F(AgentEvents, WhatHappensWhileNoAgentRunsIsToldByTheNextOneOnce) {
  const FakeContainer p = Admit("team-a", "p");
  const FakeContainer q = Admit("team-b", "q");
  RunTenant(q, {"fault"});
  ASSERT_TRUE(WaitForEvent("team-b/q", "GpuFault")) << node_.AgentLog() << node_.ApiServerLog();
  node_.KillAgent(SIGKILL);
  RunTenant(p, {"fault"});
  node_.StartAgent(arguments_);
  ASSERT_TRUE(WaitForEvent("team-a/p", "GpuFault")) << node_.AgentLog() << node_.ApiServerLog();
  EXPECT_EQ(Events("team-a/p", "GpuFault").at(0)["count"], 1);
  ASSERT_EQ(Events("team-b/q", "GpuFault").size(), 1u);
  EXPECT_EQ(Events("team-b/q", "GpuFault").at(0)["count"], 1);
}

// As of a StatefulSet.
TEST_F(AgentEvents, APodThatHasTheNameOfAnEarlierOneHasEventsOfItsOwn) {
  RunTenant(Admit("team-a", "p"), {"fault"});
  ASSERT_TRUE(WaitForEvent("team-a/p", "GpuFault")) << node_.AgentLog() << node_.ApiServerLog();
  node_.kubelet().RemovePod("team-a", "p");
  pods_["team-a/p"]["uid"] = "uid-of-the-next";
  node_.WritePods(pods_.dump());
  RunTenant(Admit("team-a", "p"), {"fault"});
  ASSERT_TRUE(node_.WaitFor([&] { return Events("team-a/p", "GpuFault").size() == 2; }))
      << node_.ApiServerLog();
  std::set<std::string> uids;
  for (const Json& event : Events("team-a/p", "GpuFault")) {
    uids.insert(event["involvedObject"]["uid"].get<std::string>());
    EXPECT_EQ(event["count"], 1);
  }
  EXPECT_THAT(uids, ::testing::UnorderedElementsAre("uid-of-team-a/p", "uid-of-the-next"));
}

// A tenant who makes refusals in pod after pod. It takes a minute, which is the pause between two posts of one event.
TEST_F(AgentEvents, Malicious_ANamespaceThatFloodsWaitsForItselfAndWhatRepeatsIsCounted) {
  const auto began = SteadyClock::now();
  std::vector<FakeContainer> noisy;
  for (int i = 0; i < kNoisyPods; ++i) noisy.push_back(Admit("noisy", Noisy(i).c_str()));
  const FakeContainer p = Admit("team-a", "p");
  RunTenant(noisy[0], {"refused", "2048"});
  ASSERT_TRUE(WaitForEvent("noisy/n0", "GpuMemoryRefused")) << node_.AgentLog();
  for (const FakeContainer& container : noisy) RunTenant(container, {"refused", "2048"});
  ASSERT_TRUE(node_.WaitFor([&] { return PostsOf("noisy") >= EventBook::kAtOnce; }))
      << node_.ApiServerLog();

  RunTenant(p, {"fault"});
  ASSERT_TRUE(WaitForEvent("team-a/p", "GpuFault")) << node_.ApiServerLog();
  const size_t posts = PostsOf("noisy");
  EXPECT_LE(posts, EventBook::kAtOnce + 1 +
                       static_cast<size_t>((SteadyClock::now() - began) / EventBook::kRefill));

  EXPECT_TRUE(
      node_.WaitFor([&] { return Events("noisy/n0", "GpuMemoryRefused").at(0)["count"] == 2; },
                    std::chrono::minutes(3)))
      << node_.ApiServerLog();
  EXPECT_THAT(Events("noisy/n0", "GpuMemoryRefused"), ::testing::SizeIs(1));
  EXPECT_THAT(Events("noisy/n0", "GpuMemoryRefused").at(0)["message"].get<std::string>(),
              HasSubstr("1 request for GPU memory refused"));
}

}  // namespace
}  // namespace gpuloom
