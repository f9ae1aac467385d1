// SPDX-License-Identifier: Apache-2.0
// Against the stand-in for an API server, over TLS.
#include "agent/events/event_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/cat.h"
#include "agent/events/testing/api_server_fixture.h"
#include "agent/testing/clock.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class EventSenderTest : public ApiServerFixture {
 protected:
  EventSenderTest()
      : ApiServerFixture(
            {GPULOOM_PYTHON, GPULOOM_FAKE_API_SERVER},
            {{"token", "first"}, {"pods", {{"a/p", {{"uid", "uid-of-p"}, {"node", "node-1"}}}}}}) {}
  void TearDown() override {
    sender_.reset();
    ApiServerFixture::TearDown();
  }

  void WriteToken(const std::string& token) {
    std::ofstream(folder_ + "/account/token.new") << token;
    fs::rename(folder_ + "/account/token.new", folder_ + "/account/token");
  }
  void Start() {
    EventSender::Options options;
    options.server = Server();
    options.service_account = folder_ + "/account";
    options.node = "node-1";
    options.clock = &clock_;
    sender_.emplace(std::move(options));
    sender_->Start();
  }
  static Event About(const std::string& pod, const std::string& message = "m",
                     const std::string& pod_namespace = "a") {
    return {true, pod_namespace, pod, "main", "GpuFault", message};
  }
  static Event AboutNode() { return {true, "", "", "", "GpuSick", "GPU-1 is sick"}; }
  std::vector<Json> Requests(const std::string& method, int status) const {
    std::vector<Json> requests;
    std::ifstream log(folder_ + "/log");
    for (std::string line; std::getline(log, line);) {
      const Json request = Json::parse(line, nullptr, false);
      if (request.is_object() && request["method"] == method && request["status"] == status) {
        requests.push_back(request);
      }
    }
    return requests;
  }

  TestingClock clock_;
  std::optional<EventSender> sender_;
};

TEST_F(EventSenderTest, APodsEventNamesThePodTheContainerAndTheNode) {
  Start();
  sender_->Report(About("p", "1 process lost the device"));
  ASSERT_TRUE(Within([&] { return sender_->posted() == 1; })) << Read(folder_ + "/log");
  const auto posts = Requests("POST", 201);
  ASSERT_EQ(posts.size(), 1u);
  const Json& event = posts[0]["body"];
  EXPECT_EQ(posts[0]["path"], "/api/v1/namespaces/a/events");
  EXPECT_EQ(event["involvedObject"]["kind"], "Pod");
  EXPECT_EQ(event["involvedObject"]["uid"], "uid-of-p");
  EXPECT_EQ(event["involvedObject"]["fieldPath"], "spec.containers{main}");
  EXPECT_EQ(event["message"], "1 process lost the device");
  EXPECT_EQ(event["type"], "Warning");
  EXPECT_EQ(event["count"], 1);
  EXPECT_EQ(event["source"]["host"], "node-1");
  EXPECT_THAT(event["firstTimestamp"].get<std::string>(),
              ::testing::MatchesRegex("[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+Z"));

  // What follows raises its count.
  for (int i = 0; i < 5; ++i) sender_->Report(About("p", "again"));
  clock_.Advance(EventBook::kRepeatPause);
  ASSERT_TRUE(Within([&] { return sender_->posted() == 2; }));
  const auto patches = Requests("PATCH", 200);
  ASSERT_EQ(patches.size(), 1u);
  EXPECT_EQ(patches[0]["body"]["count"], 6);
  EXPECT_EQ(patches[0]["path"],
            "/api/v1/namespaces/a/events/" + event["metadata"]["name"].get<std::string>());
  EXPECT_EQ(Requests("GET", 200).size(), 1u) << "the pod is known";
}

TEST_F(EventSenderTest, TimesAreWallTimeAfterTheMachinesClockWasSet) {
  clock_.StepWall(std::chrono::hours(-1));
  Start();
  sender_->Report(About("p"));
  ASSERT_TRUE(Within([&] { return sender_->posted() == 1; })) << Read(folder_ + "/log");
  const Json event = Requests("POST", 201)[0]["body"];
  EXPECT_EQ(event["firstTimestamp"], "2023-11-14T21:13:20Z");
  EXPECT_EQ(event["lastTimestamp"], "2023-11-14T21:13:20Z");
  clock_.StepWall(std::chrono::hours(2));
  sender_->Report(About("p"));
  clock_.Advance(EventBook::kRepeatPause);
  ASSERT_TRUE(Within([&] { return sender_->posted() == 2; }));
  EXPECT_EQ(Requests("PATCH", 200)[0]["body"]["lastTimestamp"], "2023-11-14T23:13:20Z");
}

TEST_F(EventSenderTest, ANodesEventNeedsNoPod) {
  Start();
  sender_->Report({false, "", "", "", "GpuHealthy", "GPU-1 is healthy"});
  ASSERT_TRUE(Within([&] { return sender_->posted() == 1; })) << Read(folder_ + "/log");
  const Json event = Requests("POST", 201)[0];
  EXPECT_EQ(event["path"], "/api/v1/namespaces/default/events");
  EXPECT_EQ(event["body"]["involvedObject"],
            Json({{"kind", "Node"}, {"name", "node-1"}, {"uid", "node-1"}}));
  EXPECT_EQ(event["body"]["type"], "Normal");
  EXPECT_TRUE(Requests("GET", 200).empty());
}

TEST_F(EventSenderTest, PodsThatAreGoneOrElsewhereHaveNoEvents) {
  state_["pods"]["a/elsewhere"] = {{"uid", "u"}, {"node", "node-2"}};
  WriteState();
  Start();
  sender_->Report(About("gone"));
  sender_->Report(About("elsewhere"));
  sender_->Report(About("../../../apis/x"));
  ASSERT_TRUE(Within([&] { return sender_->dropped() == 3; }));
  EXPECT_TRUE(Requests("POST", 201).empty());
  EXPECT_EQ(Requests("GET", 404).size(), 1u) << "what is no name is not asked for";
}

TEST_F(EventSenderTest, AServerThatIsBusyOrHasForgottenIsToldAgain) {
  state_["status"] = 503;
  WriteState();
  Start();
  sender_->Report(About("p"));
  ASSERT_TRUE(Within([&] { return !Requests("GET", 503).empty(); }));
  state_.erase("status");
  state_["token"] = "second";
  WriteState();
  WriteToken("second");  // as the kubelet replaces it
  clock_.Advance(EventBook::kRepeatPause);
  ASSERT_TRUE(Within([&] { return sender_->posted() == 1; })) << Read(folder_ + "/log");
  state_["forgets"] = true;
  WriteState();
  sender_->Report(About("p"));
  clock_.Advance(EventBook::kRepeatPause);
  ASSERT_TRUE(Within([&] { return sender_->posted() == 2; }));
  EXPECT_EQ(Requests("PATCH", 404).size(), 1u);
  EXPECT_EQ(Requests("POST", 201).back()["body"]["count"], 2);
}

TEST_F(EventSenderTest, APodOfTheSameNameHasItsOwnEvent) {
  Start();
  Event event = About("p");
  event.instance = "of-the-first";
  sender_->Report(event);
  ASSERT_TRUE(Within([&] { return sender_->posted() == 1; }));
  state_["pods"]["a/p"]["uid"] = "uid-of-the-next-p";
  WriteState();
  event.instance = "of-the-second";
  sender_->Report(event);
  clock_.Advance(EventBook::kRepeatPause);
  ASSERT_TRUE(Within([&] { return sender_->posted() == 2; }));
  const auto posts = Requests("POST", 201);
  ASSERT_EQ(posts.size(), 2u);
  EXPECT_EQ(posts[1]["body"]["involvedObject"]["uid"], "uid-of-the-next-p");
  EXPECT_TRUE(Requests("PATCH", 200).empty());
}

TEST_F(EventSenderTest, Malicious_PodsThatAreTooLargeHoldNobodyUp) {
  for (int i = 1; i <= 6; ++i) {
    state_["pods"][Cat("evil/p", i)] = {
        {"uid", "u"}, {"node", "node-1"}, {"metadata_bytes", 5 << 20}};
  }
  WriteState();
  Start();
  for (uint64_t minute = 0; minute < 3; ++minute) {
    for (int i = 1; i <= 6; ++i) sender_->Report(About(Cat("p", i), "m", "evil"));
    ASSERT_TRUE(Within([&] { return sender_->dropped() == 6 * (minute + 1); }))
        << Read(folder_ + "/log");
    sender_->Report(AboutNode());
    sender_->Report(About("p"));
    ASSERT_TRUE(Within([&] { return sender_->posted() == 2 * (minute + 1); }));
    clock_.Advance(EventBook::kRepeatPause);
  }
}

TEST_F(EventSenderTest, OfAPodNoMoreThanItsMetadataIsRead) {
  state_["pods"]["a/p"]["spec_bytes"] = 5 << 20;
  WriteState();
  Start();
  sender_->Report(About("p"));
  ASSERT_TRUE(Within([&] { return sender_->posted() == 1; })) << Read(folder_ + "/log");
  EXPECT_EQ(Requests("POST", 201)[0]["body"]["involvedObject"]["uid"], "uid-of-p");
}

TEST_F(EventSenderTest, Malicious_AnEventThatWasMadeALargeOneIsPostedAllTheSame) {
  state_["event_bytes"] = 5 << 20;
  WriteState();
  Start();
  sender_->Report(About("p"));
  ASSERT_TRUE(Within([&] { return sender_->posted() == 1; })) << Read(folder_ + "/log");
  sender_->Report(About("p"));
  clock_.Advance(EventBook::kRepeatPause);
  ASSERT_TRUE(Within([&] { return sender_->posted() == 2; }));
  EXPECT_EQ(Requests("POST", 201).size(), 1u);
  EXPECT_EQ(Requests("PATCH", 200).size(), 1u);
}

TEST_F(EventSenderTest, Malicious_ANamespaceWhereTheServerFailsWaitsByItself) {
  state_["statuses"] = {{"evil", 500}};
  WriteState();
  Start();
  for (uint64_t minute = 0; minute < 8; ++minute) {
    for (int i = 1; i <= 6; ++i) sender_->Report(About(Cat("p", i), "m", "evil"));
    ASSERT_TRUE(Within([&] { return Requests("GET", 500).size() == minute + 1; }));
    sender_->Report(AboutNode());
    ASSERT_TRUE(Within([&] { return sender_->posted() == minute + 1; }));
    clock_.Advance(EventBook::kRepeatPause);
  }
}

TEST_F(EventSenderTest, WhatTheServerRefusesIsDropped) {
  state_["status"] = 403;
  WriteState();
  Start();
  sender_->Report(AboutNode());
  ASSERT_TRUE(Within([&] { return sender_->dropped() == 1; }));
  EXPECT_EQ(sender_->posted(), 0u);
}

TEST_F(EventSenderTest, NoServerButTheClustersOwnGetsTheToken) {
  // Another authority signed this one.
  const std::string other = folder_ + "/other";
  fs::create_directories(other);
  pid_t pid = 0;
  ASSERT_EQ(StartDetached({GPULOOM_PYTHON, GPULOOM_FAKE_API_SERVER, other}, environ,
                          other + "/server.log", &pid),
            0);
  ASSERT_TRUE(Within([&] { return fs::exists(other + "/port"); }));
  const std::atomic<bool> is_cancelled = false;
  ApiClient client("https://127.0.0.1:" + Read(other + "/port"), folder_ + "/account",
                   &is_cancelled);
  const auto answer = client.Get("/api/v1/namespaces/a/pods/p");
  EXPECT_FALSE(answer.ok());
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("certificate"));
  EXPECT_FALSE(fs::exists(other + "/log"));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  ApiClient plain("http://127.0.0.1:1", folder_ + "/account", &is_cancelled);
  EXPECT_FALSE(plain.Get("/").ok());
  ApiClient without("https://127.0.0.1:1", folder_ + "/no-account", &is_cancelled);
  EXPECT_THAT(std::string(without.Get("/").status().message()),
              HasSubstr("no token of a service account"));
}

TEST(EventSender, WithoutAServerEventsAreLinesOfTheLogOnly) {
  TestingClock clock;
  EventSender sender({"", "", "node-1", &clock});
  sender.Start();
  for (int i = 0; i < 1000; ++i) sender.Report({true, "a", "p", "main", "GpuFault", "m"});
  EXPECT_EQ(sender.posted(), 0u);
  EXPECT_EQ(sender.dropped(), 0u);
}

TEST(EventSender, Malicious_NamespacesWithoutEndLeaveOthersTheirLines) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  TestingClock clock;
  {
    EventSender sender({"", "", "node-1", &clock});
    const auto tell = [&](const std::string& whose, const std::string& message) {
      sender.Report({true, whose, "p", "main", "GpuFault", message});
    };
    for (int i = 0; i < 2000; ++i) tell(Cat("evil-", i), "m");
    clock.Advance(std::chrono::hours(1));
    for (int i = 0; i < 200; ++i) tell("evil", "m");
    tell("honest", "heard");
  }
  spdlog::set_default_logger(before);
  EXPECT_THAT(log.str(), HasSubstr("heard"));
}

TEST(ApiServerOfCluster, IsWhatTheKubeletSays) {
  ASSERT_EQ(unsetenv("KUBERNETES_SERVICE_HOST"), 0);
  EXPECT_EQ(ApiServerOfCluster().status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(setenv("KUBERNETES_SERVICE_PORT", "443", 1), 0);
  ASSERT_EQ(setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1), 0);
  EXPECT_EQ(*ApiServerOfCluster(), "https://10.0.0.1:443");
  ASSERT_EQ(setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1), 0);
  EXPECT_EQ(*ApiServerOfCluster(), "https://[fd00::1]:443");
  unsetenv("KUBERNETES_SERVICE_HOST");
  unsetenv("KUBERNETES_SERVICE_PORT");
}

}  // namespace
}  // namespace gpuloom
