// SPDX-License-Identifier: Apache-2.0
// The node's page in a real browser: what it shows of real tenants, and of names and messages that would be markup. With
// GPULOOM_PAGE_SCREENSHOT=FILE.png the real run goes on for five minutes and leaves a picture
// there: docs/node-page.png.
#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "agent/metrics/exporter.h"
#include "agent/metrics/testing/http.h"
#include "agent/metrics/testing/node.h"
#include "agent/testing/clock.h"
#include "tests/integration/agent_tenant_fixture.h"
#include "tests/integration/browser.h"
#include "tests/integration/process.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A tenant's program may not say what an operator's browser does.
class HostilePage : public MetricsNode {};

TEST_F(HostilePage, Malicious_NamesAndReasonsAreText) {
  const std::string image = "<img src=x onerror=document.title='taken'>";
  const std::string script = "</script><script>document.title='taken'</script>";
  control::AllocationState state = AllocationOf("a1", "red", image);
  Use(&state, 1);
  control::SetText(state.container, "<b>main");
  control::AllocationState other = AllocationOf("a2", "\"><script>taken", script);
  {
    const MutexLock lock(scheduler_->mutex);
    scheduler_->report = ReportOf({state, other}, 100);
  }
  Observer::Options options = Options();
  options.node = [&] {
    NodeFigures node;
    NodeFigures::OneGpu gpu;
    gpu.gpu.uuid = kGpu;
    gpu.gpu.name = image;
    gpu.standing.impossible_rules = 3;
    gpu.standing.impossible = {script + " is impossible"};
    node.gpus = {gpu};
    node.policy_trouble = script;
    node.latest_refusals = {{"PreStartContainer", image, 1}};
    return node;
  };
  std::string error;
  TestingClock clock;
  Exporter exporter(*ParseListenAddress("127.0.0.1:0", &error), AllowedHosts(), options, &clock);
  exporter.Start();
  ASSERT_TRUE(testing::Eventually([&] {
    return exporter.port() != 0 &&
           HttpGet(exporter.port(), "/api/v1/state").find("taken") != std::string::npos;
  }));
  testing::Browser browser(state_ + "/browser");
  ASSERT_EQ(browser.Run({"--dump-dom"}, exporter.port()), 0) << browser.log;
  EXPECT_THAT(browser.dom, AllOf(HasSubstr("<title>gpuloom</title>"),
                                 HasSubstr("red/&lt;img src=x onerror=document.title='taken'&gt;"),
                                 HasSubstr("&lt;b&gt;main"), HasSubstr("&lt;/script&gt;"),
                                 HasSubstr(" is impossible</li>"), HasSubstr(": 2 more rules."),
                                 Not(HasSubstr("<img")), Not(HasSubstr("<script>taken"))));
  EXPECT_THAT(browser.log,
              AllOf(Not(HasSubstr("Content Security Policy")), Not(HasSubstr("Uncaught"))));
}

class AgentPage : public AgentTenant {
 protected:
  std::vector<std::string> AgentArguments() const override {
    return {"--metrics-address", "127.0.0.1:0"};
  }
  int Port() {
    const std::string before = "metrics: serving at http://127.0.0.1:";
    EXPECT_TRUE(node_.WaitForLog(before)) << node_.AgentLog();
    const std::string log = node_.AgentLog();
    const size_t at = log.find(before);
    return at == log.npos ? 0 : std::stoi(log.substr(at + before.size()));
  }
  nlohmann::json State() {
    const std::string answer = HttpGet(Port(), "/api/v1/state");
    const size_t end = answer.find("\r\n\r\n");
    return end == answer.npos ? nlohmann::json() : nlohmann::json::parse(answer.substr(end + 4));
  }
};

TEST_F(AgentPage, ShowsTenantsSharesAndRefusals) {
  const char* picture = getenv("GPULOOM_PAGE_SCREENSHOT");
  // Faults of one must not end another: each has a trust domain of its own.
  const FakeContainer trains = Admit("team-vision", "train-0");
  const FakeContainer serves = Admit("team-speech", "serve-7d9f");
  const FakeContainer breaks = Admit("research", "notebook-ada");
  node_.WritePolicy("namespaces: {guests: {deny: true}}");
  ASSERT_TRUE(node_.WaitForLog("policy.yaml reloaded")) << node_.AgentLog();
  const auto refused = node_.kubelet().Admit({"guests", "miner", {{"main", 1, false}}});
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_FALSE(node_.kubelet().PrepareStart("guests", "miner", "main").ok());

  testing::Process holding({GPULOOM_TENANT, "hold", "60"}, Environment(serves));
  EXPECT_TRUE(holding.ReadLine("ready").has_value());
  std::atomic<bool> is_over = false;
  std::thread training([&] {
    while (!is_over) Run(trains, "gpuloom-tenant", {"spin", "2.5"});
  });
  std::thread serving([&] {
    for (int i = 0; !is_over; ++i) {
      Run(serves, "gpuloom-tenant", {"spin", i % 3 == 0 ? "4" : "1"});
      std::this_thread::sleep_for(std::chrono::milliseconds(i % 7 * 400));
    }
  });
  EXPECT_EQ(Run(breaks, "gpuloom-tenant", {"refused", "2048"}).result.exit_code, 0);
  EXPECT_EQ(Run(breaks, "gpuloom-tenant", {"fault"}).result.exit_code, 0);
  EXPECT_TRUE(node_.WaitFor([&] {
    const nlohmann::json state = State();
    return state.is_object() && !state["gpus"].empty() && state["gpus"][0]["shares"].size() >= 2 &&
           state.dump().find("\"lost_device\":1") != std::string::npos;
  })) << State();
  testing::Browser browser(node_.state_directory() + "-browser");
  if (picture != nullptr) {
    std::this_thread::sleep_for(ShareHistory::kSteps * ShareHistory::kStep);
    EXPECT_EQ(
        browser.Run({"--screenshot=" + std::string(picture), "--window-size=1200,880"}, Port()), 0);
  }
  EXPECT_EQ(browser.Run({"--dump-dom"}, Port()), 0) << browser.log;
  is_over = true;
  training.join();
  serving.join();
  EXPECT_THAT(browser.dom,
              AllOf(HasSubstr("The node serves"), HasSubstr("team-vision/train-0"),
                    HasSubstr("team-speech/serve-7d9f"), HasSubstr("<polygon class=\"k0\""),
                    HasSubstr("lost_device: 1"), HasSubstr("guests/miner"),
                    HasSubstr("4 of 10 slots"), HasSubstr("60 MiB of 88 MiB")));
  EXPECT_THAT(browser.log,
              AllOf(Not(HasSubstr("Content Security Policy")), Not(HasSubstr("Uncaught"))));
}

}  // namespace
}  // namespace gpuloom
