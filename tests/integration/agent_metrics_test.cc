// SPDX-License-Identifier: Apache-2.0
// A real agent's figures, from real tenants on the software GPU: as text, as promtool judges them, and as a real Prometheus
// scrapes them and answers the documents' queries. Everything listens on this machine's loopback only.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "agent/metrics/testing/http.h"
#include "tests/fake_kubelet/allocation_report.h"
#include "tests/integration/agent_tenant_fixture.h"
#include "tests/integration/process.h"
#include "tests/integration/prometheus.h"

namespace gpuloom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

// The queries of a document's blocks: each begins at the left.
std::vector<std::string> QueriesOf(const std::string& document) {
  std::ifstream page(document);
  std::vector<std::string> queries;
  bool is_query = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("```")) {
      is_query = line == "```promql";
    } else if (is_query && line.find_first_of(" )") != 0) {
      queries.push_back(line);
    } else if (is_query) {
      queries.back() += "\n" + line;
    }
  }
  return queries;
}

class AgentMetrics : public AgentTenant {
 protected:
  std::vector<std::string> AgentArguments() const override {
    return {"--metrics-address", "127.0.0.1:" + std::to_string(port_)};
  }
  std::string Body(const std::string& path) const {
    const std::string answer = HttpGet(port_, path);
    const size_t end = answer.find("\r\n\r\n");
    return answer.starts_with("HTTP/1.1 200 ") ? answer.substr(end + 4) : "";
  }
  // The sum of the samples of this name whose labels have all these texts.
  static double Sum(const std::string& text, const std::string& name,
                    const std::vector<std::string>& labels = {}) {
    std::istringstream lines(text);
    double sum = 0;
    for (std::string line; std::getline(lines, line);) {
      const size_t space = line.rfind(' ');
      const size_t brace = line.find('{');
      if (line.substr(0, std::min(brace, space)) != name) continue;
      bool fits = true;
      for (const std::string& label : labels) fits = fits && line.find(label) != line.npos;
      if (fits) sum += std::stod(line.substr(space + 1));
    }
    return sum;
  }
  double Now(const std::string& name, const std::vector<std::string>& labels = {}) const {
    return Sum(Body("/metrics"), name, labels);
  }
  void RunTenant(const FakeContainer& container, const std::vector<std::string>& arguments) {
    const Ran ran = Run(container, "gpuloom-tenant", arguments);
    EXPECT_EQ(ran.result.exit_code, 0) << ran.output << node_.AgentLog();
  }

  const int port_ = testing::FreePort();
};

// Pods one after another in one slot, and a container behind an init container: who pays by slots pays for one at a time.
TEST_F(AgentMetrics, SlotsThatPassOnAreHeldOnce) {
  const auto held = [&](double slots) {
    return node_.WaitFor([&] { return Now("gpuloom_tenant_slots") == slots; });
  };
  FakeContainer last = Admit("team-a", "p0");
  EXPECT_TRUE(held(1)) << Body("/metrics");
  for (int i = 1; i < 4; ++i) {
    node_.kubelet().RemovePod("team-a", "p" + std::to_string(i - 1));
    const std::string name = "p" + std::to_string(i);
    ASSERT_TRUE(node_.kubelet()
                    .AdmitWithDevices({"team-a", name, {{"main", 1, false}}}, {last.device_ids})
                    .ok());
    last = Restart("team-a", name.c_str());
    EXPECT_TRUE(node_.WaitFor([&] {
      return Now("gpuloom_tenant_slots", {"pod=\"" + name + "\""}) == 1;
    })) << Body("/metrics");
    EXPECT_EQ(Now("gpuloom_tenant_slots"), 1) << Body("/metrics");
  }
  ASSERT_TRUE(
      node_.kubelet().Admit({"team-b", "q", {{"setup", 3, true}, {"main", 2, false}}}).ok());
  ASSERT_TRUE(node_.kubelet().PrepareStart("team-b", "q", "setup").ok()) << node_.AgentLog();
  EXPECT_TRUE(held(4)) << Body("/metrics");
  ASSERT_TRUE(node_.kubelet().PrepareStart("team-b", "q", "main").ok()) << node_.AgentLog();
  EXPECT_TRUE(node_.WaitFor([&] {
    return Now("gpuloom_tenant_slots", {"container=\"main\"", "pod=\"q\""}) == 2;
  })) << Body("/metrics");
  EXPECT_EQ(Now("gpuloom_tenant_slots"), 4) << Body("/metrics");
  EXPECT_EQ(Now("gpuloom_gpu_slots_allocated"), 4);
}

TEST_F(AgentMetrics, WhatTenantsDidIsCountedScrapedAndAnswersTheDocumentsQueries) {
  const FakeContainer a = Admit("team-a", "p");
  const FakeContainer b = Admit("team-b", "q");
  RunTenant(a, {"vadd"});
  RunTenant(a, {"unsupported"});
  RunTenant(b, {"spin", "1"});
  RunTenant(b, {"refused", "2048"});
  RunTenant(b, {"fault"});
  std::string text;
  EXPECT_TRUE(node_.WaitFor([&] {
    text = Body("/metrics");
    return Sum(text, "gpuloom_tenant_sessions_started_total") == 5 &&
           Sum(text, "gpuloom_tenant_sessions") == 0;
  })) << text;

  EXPECT_EQ(Sum(text, "gpuloom_tenant_kernels_total",
                {"namespace=\"team-a\"", "pod=\"p\"", "container=\"main\""}),
            1);
  EXPECT_EQ(Sum(text, "gpuloom_namespace_kernels_total", {"team-a"}), 1);
  EXPECT_GE(Sum(text, "gpuloom_tenant_kernels_total", {"team-b"}), 2);
  EXPECT_EQ(Sum(text, "gpuloom_tenant_refusals_total", {"pod=\"q\"", "kind=\"memory\""}), 1);
  EXPECT_EQ(Sum(text, "gpuloom_tenant_refusals_total"), 1);
  EXPECT_EQ(Sum(text, "gpuloom_tenant_faults_total", {"pod=\"q\"", "kind=\"lost_device\""}), 1);
  EXPECT_EQ(Sum(text, "gpuloom_namespace_faults_total", {"team-b"}), 1);
  EXPECT_EQ(Sum(text, "gpuloom_tenant_unsupported_call",
                {"pod=\"p\"", "call=\"cuGraphicsUnregisterResource\""}),
            1);
  EXPECT_EQ(Sum(text, "gpuloom_tenant_unsupported_call", {"pod=\"p\"", "call=\"other\""}), 1);
  EXPECT_THAT(text, Not(HasSubstr("cuFly"))) << "a program's invention is no label";
  EXPECT_GT(Sum(text, "gpuloom_tenant_memory_peak_bytes", {"team-a"}), 0);
  EXPECT_GT(Sum(text, "gpuloom_tenant_copied_bytes_total", {"team-a", "from_device"}), 0);
  EXPECT_GT(Sum(text, "gpuloom_tenant_completion_seconds_count", {"team-b"}), 0);
  EXPECT_EQ(Sum(text, "gpuloom_gpu_slots_allocated"), 2);
  EXPECT_EQ(Sum(text, "gpuloom_domain_slots", {"trust_domain=\"namespace/team-a\""}), 1);
  EXPECT_EQ(Sum(text, "gpuloom_domain_slots"), 2);
  EXPECT_GT(Sum(text, "gpuloom_domain_memory_promised_bytes"), 0);
  EXPECT_EQ(Sum(text, "gpuloom_domain_memory_promised_bytes"),
            Sum(text, "gpuloom_gpu_memory_promised_bytes"));
  EXPECT_EQ(Sum(text, "gpuloom_kubelet_requests_total", {"call=\"Allocate\""}), 2);
  EXPECT_EQ(Sum(text, "gpuloom_kubelet_requests_total", {"call=\"PreStartContainer\""}), 2);
  EXPECT_EQ(Sum(text, "gpuloom_kubelet_refusals_total"), 0);
  EXPECT_EQ(Sum(text, "gpuloom_agent_bound_allocations"), 2);
  EXPECT_EQ(Sum(text, "gpuloom_gpu_scheduler_up"), 1);
  EXPECT_GE(Sum(text, "gpuloom_kubelet_watches"), 1);
  EXPECT_GE(Sum(text, "gpuloom_gpu_executors_lost_total"), 1) << "the fault's";
  // A second of spinning, and all that the GPU was busy for has been somebody's.
  EXPECT_GT(Sum(text, "gpuloom_tenant_gpu_seconds_total", {"team-b", "compute"}), 0.9);
  for (const char* engine : {"compute", "copy_to_device", "copy_from_device"}) {
    const std::string label = "engine=\"" + std::string(engine) + "\"";
    const double busy = Sum(text, "gpuloom_gpu_busy_seconds_total", {label});
    EXPECT_GT(busy, 0) << engine;
    EXPECT_NEAR(Sum(text, "gpuloom_tenant_gpu_seconds_total", {label}), busy, 1e-6) << engine;
    EXPECT_NEAR(Sum(text, "gpuloom_namespace_gpu_seconds_total", {label}), busy, 1e-6) << engine;
    EXPECT_NEAR(Sum(text, "gpuloom_domain_busy_seconds_total", {label}), busy, 1e-6) << engine;
  }

  const std::string folder = node_.state_directory() + "-prometheus";
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/metrics.txt") << text;
  testing::Process promtool(
      {"/bin/sh", "-c", "promtool check metrics < " + folder + "/metrics.txt 2>&1"});
  EXPECT_EQ(promtool.ExitStatus(), 0) << promtool.output();
  EXPECT_EQ(promtool.output(), "");

  const testing::Prometheus prometheus(folder + "/scraping", port_);
  // Twice, so that there is a rate.
  ASSERT_TRUE(node_.WaitFor([&] {
    const Json scrapes = prometheus.Results("count_over_time(gpuloom_gpu_slots[5m])");
    return scrapes.size() == 1 && std::stod(scrapes[0]["value"][1].get<std::string>()) >= 2;
  }));
  const Json kernels =
      prometheus.Results("gpuloom_tenant_kernels_total{namespace=\"team-a\",pod=\"p\"}");
  ASSERT_EQ(kernels.size(), 1u) << kernels;
  EXPECT_EQ(kernels[0]["value"][1], "1");
  const std::vector<std::string> documented = QueriesOf(GPULOOM_SOURCE_DIR "/docs/metrics.md");
  EXPECT_GT(documented.size(), 8u);
  for (const std::string& promql : documented) {
    EXPECT_EQ(prometheus.Query(promql).value("status", ""), "success")
        << promql << prometheus.Query(promql);
  }
  const Json cost = prometheus.Results(documented.back());
  EXPECT_EQ(cost.size(), 2u) << documented.back() << cost;
  // What the dashboard draws: each of its panels has series of this node. A quantile of nothing, as of waits where nobody
  // waited, is one, too.
  std::ifstream dashboard(GPULOOM_SOURCE_DIR "/charts/gpuloom/dashboards/gpuloom.json");
  const std::vector<std::string> drawn = testing::ExpressionsOf(Json::parse(dashboard));
  EXPECT_GT(drawn.size(), 30u);
  for (const std::string& promql : drawn) {
    EXPECT_TRUE(node_.WaitFor([&] { return !prometheus.Results(promql).empty(); }))
        << promql << prometheus.Query(promql);
  }
}

TEST_F(AgentMetrics, TheDocumentsChargeIsForWhatTheAgentHasCounted) {
  const FakeContainer a = Admit("team-a", "p");
  const FakeContainer b = Admit("team-b", "q");
  for (const FakeContainer* container : {&a, &b}) RunTenant(*container, {"vadd"});
  const auto are_over = [&](int sessions) {
    const std::string text = Body("/metrics");
    return Sum(text, "gpuloom_tenant_sessions_started_total") == sessions &&
           Sum(text, "gpuloom_tenant_sessions") == 0;
  };
  ASSERT_TRUE(node_.WaitFor([&] { return are_over(2); }));
  const std::vector<std::string> gpu = {"team-b", "compute"};
  const double gpu_before = Now("gpuloom_namespace_gpu_seconds_total", gpu);
  const double slots_before = Now("gpuloom_namespace_slot_seconds_total", {"team-a"});
  const testing::Prometheus prometheus(node_.state_directory() + "-prometheus", port_);
  // One number, of a time.
  const auto number = [&](const std::string& promql, const Json& time) {
    const Json found = prometheus.Results(promql, time);
    return found.size() == 1 ? std::stod(found[0]["value"][1].get<std::string>()) : 0;
  };
  const std::string gpu_seconds =
      "gpuloom_namespace_gpu_seconds_total{engine=\"compute\",namespace=\"team-b\"}";
  ASSERT_TRUE(node_.WaitFor([&] { return number(gpu_seconds, nullptr) > 0; }));
  RunTenant(b, {"spin", "1"});
  ASSERT_TRUE(node_.WaitFor([&] { return are_over(3); }));
  const double used = Now("gpuloom_namespace_gpu_seconds_total", gpu) - gpu_before;
  EXPECT_GT(used, 0.9);
  ASSERT_TRUE(node_.WaitFor(
      [&] { return std::abs(number(gpu_seconds, nullptr) - gpu_before - used) < 1e-9 * used; }));

  const Json cost = prometheus.Results(QueriesOf(GPULOOM_SOURCE_DIR "/docs/metrics.md").back());
  const double slots_now = Now("gpuloom_namespace_slot_seconds_total", {"team-a"});
  ASSERT_EQ(cost.size(), 2u) << cost;
  const Json time = cost[0]["value"][0];
  // Prometheus's increase is of the time between its first and last scrape, and by a half or 1.1 of the time between two more at
  // either end: how much is the agent's to say, within that.
  const double most = 1 + 2.2 / (number("count_over_time(" + gpu_seconds + "[1d])", time) - 1);
  const double charged = number("increase(" + gpu_seconds + "[1d])", time);
  EXPECT_GE(charged, used * (1 - 1e-9));
  EXPECT_LE(charged, used * most);
  for (const Json& one : cost) {
    const std::string team = one["metric"]["namespace"];
    const double slots = number(
        "increase(gpuloom_namespace_slot_seconds_total{namespace=\"" + team + "\"}[1d])", time);
    EXPECT_GT(slots, 0);
    EXPECT_LE(slots, (slots_now - slots_before) * most) << "both had their slot all the time";
    // One slot of ten is a tenth of the GPU.
    const double hours = std::max(slots / 10, team == "team-b" ? charged : 0) / 3600;
    EXPECT_NEAR(std::stod(one["value"][1].get<std::string>()), 2.50 * hours, 1e-9) << cost;
  }
}

TEST_F(AgentMetrics, WaitingAndThrottlingShowWhileTenantsCompute) {
  node_.WritePolicy("namespaces:\n  team-b: {timeShareMax: 20%}\n");
  ASSERT_TRUE(node_.WaitFor([&] { return Now("gpuloom_policy_generation") == 2; }));
  testing::Process free = Rest(Admit("team-a", "free"));
  testing::Process capped = Rest(Admit("team-b", "capped"));
  std::string text;
  EXPECT_TRUE(node_.WaitFor([&] {
    text = Body("/metrics");
    return Sum(text, "gpuloom_tenant_throttled_seconds_sum", {"pod=\"capped\""}) > 0 &&
           Sum(text, "gpuloom_tenant_queue_wait_seconds_count", {"pod=\"capped\""}) > 0 &&
           Sum(text, "gpuloom_tenant_queue_wait_seconds_count", {"pod=\"free\""}) > 0;
  })) << text;
  EXPECT_EQ(Sum(text, "gpuloom_tenant_throttled_seconds_sum", {"pod=\"free\""}), 0);
  // Whatever a ceiling keeps waits.
  EXPECT_GE(Sum(text, "gpuloom_tenant_queue_wait_seconds_sum", {"pod=\"capped\""}),
            Sum(text, "gpuloom_tenant_throttled_seconds_sum", {"pod=\"capped\""}));
}

TEST_F(AgentMetrics, NamespacesCountersGoThroughDeathsOfAgentAndScheduler) {
  const std::string name = "gpuloom_namespace_kernels_total";
  const FakeContainer container = Admit("team-a", "p");
  RunTenant(container, {"vadd"});
  ASSERT_TRUE(node_.WaitFor([&] { return Now(name, {"team-a"}) == 1; }));
  node_.KillAgent(SIGKILL);
  RunTenant(container, {"vadd"});
  node_.StartAgent(AgentArguments());
  EXPECT_TRUE(node_.WaitFor([&] { return Now(name, {"team-a"}) == 2; })) << node_.AgentLog();
  for (const pid_t pid : node_.SchedulerPids()) kill(pid, SIGKILL);
  // Not by the count of restarts: one of a scheduler that has just begun is not told from a slow answer (Ledger::Add).
  EXPECT_TRUE(node_.WaitForLog("started scheduler")) << node_.AgentLog();
  EXPECT_TRUE(node_.WaitFor([&] { return Now("gpuloom_gpu_scheduler_up") == 1; }));
  EXPECT_EQ(Now(name, {"team-a"}), 2);
  RunTenant(Restart("team-a", "p"), {"vadd"});
  EXPECT_TRUE(node_.WaitFor([&] { return Now(name, {"team-a"}) == 3; })) << Body("/metrics");
  EXPECT_EQ(Now("gpuloom_tenant_kernels_total", {"team-a"}), 3);
}

TEST_F(AgentMetrics, TheNextAgentTakesThePortOver) {
  RunTenant(Admit("team-a", "p"), {"vadd"});
  ASSERT_TRUE(node_.WaitFor([&] { return Now("gpuloom_namespace_kernels_total") == 1; }));
  const std::string before = node_.AgentLog();
  ASSERT_TRUE(node_.ReplaceAgent(AgentArguments())) << node_.AgentLog();
  EXPECT_TRUE(node_.WaitForLog("metrics: serving at http://127.0.0.1:" + std::to_string(port_)));
  EXPECT_TRUE(node_.WaitFor([&] { return Now("gpuloom_namespace_kernels_total") == 1; }));
  EXPECT_THAT(HttpGet(port_, "/healthz"), HasSubstr("200 OK"));
}

TEST(AgentMetricsPort, OneInUseStopsNothing) {
  AgentNode node(1, 10, GPULOOM_SHIM_PATH);
  ASSERT_TRUE(node.kubelet().Start().ok());
  channel::UniqueFd holder(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(holder.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(holder.get(), 1), 0);
  getsockname(holder.get(), reinterpret_cast<sockaddr*>(&address), &length);
  const std::string place = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  node.StartAgent({"--metrics-address", place});
  EXPECT_TRUE(node.kubelet().WaitForDevices(10, kAgentPatience).ok()) << node.AgentLog();
  EXPECT_TRUE(node.WaitForLog("metrics: cannot serve on " + place + ": Address already in use"));
  holder.Reset();
  EXPECT_TRUE(node.WaitForLog("metrics: serving at http://" + place)) << node.AgentLog();
}

}  // namespace
}  // namespace gpuloom
