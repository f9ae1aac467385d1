// SPDX-License-Identifier: Apache-2.0
// `gpuloom trace` beside a real scheduler, executors and tenants of the software GPU.
#include "agent/run/trace.h"

#include <pthread.h>
#include <signal.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "agent/run/status.h"
#include "agent/run/testing/run_fixture.h"
#include "proto/control/testing/recording.h"

namespace gpuloom::run {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class TraceTest : public GpuloomRun {
 protected:
  pid_t Tenant(const std::string& name, const std::string& mode = "count",
               const std::vector<std::string>& options = {}) {
    return Start({GPULOOM_PYTHON, GPULOOM_COUNTING_TENANT, mode, root_ / name, root_ / "stop"},
                 options);
  }
  bool HasBegun(const std::string& name) {
    return Within(seconds(60), [&] { return Read(root_ / name).ends_with("\n"); });
  }
  Answer Ask(milliseconds time) const { return run::Trace({time, root_ / "trace.json", state_}); }
  Json File() const { return Json::parse(Read(root_ / "trace.json")); }
  void Stop() const { std::ofstream(root_ / "stop") << "now"; }
  // The tenants that have kernels, each with the number of its events.
  static std::map<std::string, int> Kernels(const Json& json) {
    std::map<int, std::string> processes;
    std::map<std::string, int> kernels;
    for (const Json& event : json["traceEvents"]) {
      if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
      if (event["ph"] == "X" && event["cat"] == "kernel") {
        EXPECT_EQ(event["name"], "count");
        ++kernels[processes.at(event["pid"])];
      }
    }
    return kernels;
  }
};

TEST_F(TraceTest, KernelsOfAllTenantsOnOneTimeLine) {
  const pid_t one = Tenant("one"), other = Tenant("other", "count", {"--domain", "elsewhere"});
  ASSERT_TRUE(HasBegun("one") && HasBegun("other")) << Errors();
  // On the software GPU as long as it takes until both have had their turn.
  Answer outcome;
  std::map<std::string, int> kernels;
  ASSERT_TRUE(Within(seconds(120), [&] {
    outcome = Ask(milliseconds(500));
    kernels = Kernels(File());
    return kernels.size() == 2;
  })) << outcome.trouble;
  EXPECT_EQ(outcome.exit_status, 0) << outcome.trouble;
  const Json json = File();
  ASSERT_EQ(json["otherData"]["gpus"].size(), 1u);
  const Json parts = json["otherData"]["gpus"][0]["parts"];
  ASSERT_EQ(parts.size(), 2u);
  std::set<std::string> domains;
  for (const Json& part : parts) {
    SCOPED_TRACE(part.dump());
    domains.insert(part["trust_domain"]);
    EXPECT_EQ(part["end"], "whole");
    EXPECT_EQ(part["source"], "executor");
    EXPECT_THAT(part["source_reason"].get<std::string>(), HasSubstr("cupti"));
    EXPECT_EQ(part["dropped"], 0);
    ASSERT_EQ(part["sessions"].size(), 1u);
    EXPECT_GT(part["sessions"][0]["kernels"], 0);
    EXPECT_GT(part["charged_seconds"], 0);
    EXPECT_GT(part["compute_seconds"], 0);
    EXPECT_LE(part["compute_seconds"], part["seconds"]);
    EXPECT_GE(part["seconds"], 0.5);
  }
  EXPECT_EQ(domains, (std::set<std::string>{"elsewhere", "local"}));
  EXPECT_THAT(outcome.text, HasSubstr("local/"));
  EXPECT_THAT(outcome.text, HasSubstr("(all)"));
  Stop();
  EXPECT_EQ(Wait(one), 0) << Errors();
  EXPECT_EQ(Wait(other), 0) << Errors();
}

TEST_F(TraceTest, AsAUserRunsIt) {
  const pid_t one = Tenant("one");
  ASSERT_TRUE(HasBegun("one")) << Errors();
  EXPECT_EQ(Gpuloom({"trace", "--seconds", "0.3", "-o", "-", "--state-dir", state_}), 0)
      << Errors();
  EXPECT_TRUE(Json::parse(Output()).contains("traceEvents"));
  EXPECT_THAT(Errors(), HasSubstr("RECORDED-BY"));
  EXPECT_EQ(Gpuloom({"trace", "--seconds", "1", "-o", "/nowhere/trace", "--state-dir", state_}), 1);
  EXPECT_THAT(Errors(), HasSubstr("/nowhere/trace cannot be written: No such file"));
  for (const char* time : {"0", "-1", "241", "nan", "soon"}) {
    EXPECT_EQ(Gpuloom({"trace", "--seconds", time, "-o", root_ / "x"}), 2) << time;
  }
  EXPECT_FALSE(std::filesystem::exists(root_ / "x"));
  Stop();
  EXPECT_EQ(Wait(one), 0) << Errors();
}

TEST_F(TraceTest, AnExecutorThatEndsInTheMiddleIsSaidToHave) {
  const pid_t one = Tenant("one");
  ASSERT_TRUE(HasBegun("one")) << Errors();
  Answer outcome;
  std::thread tracing([&] { outcome = Ask(seconds(60)); });
  const auto executor = [&] {
    pid_t found = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string stat = Read(entry.path() / "stat");
      if (stat.find("(gpuloom-executo)") == stat.npos) continue;
      const std::string rest = stat.substr(stat.rfind(')') + 4);
      if (atoi(rest.c_str()) == SchedulerPid()) found = atoi(entry.path().filename().c_str());
    }
    return found;
  };
  ASSERT_TRUE(Within(seconds(60), [&] {
    return Read(state_ / "scheduler.log").find("a trace begins") != std::string::npos;
  }));
  const Answer second = run::Trace({milliseconds(1), root_ / "second.json", state_});
  EXPECT_EQ(second.exit_status, 1);
  EXPECT_THAT(second.trouble, HasSubstr("being traced already"));
  ASSERT_GT(executor(), 0);
  kill(executor(), SIGKILL);
  EXPECT_NE(Wait(one), 0) << "it loses its GPU";
  // The next one's executor is in the same trace.
  const pid_t next = Tenant("next");
  ASSERT_TRUE(HasBegun("next")) << Errors();
  // As from a terminal: what there is is written.
  pthread_kill(tracing.native_handle(), SIGTERM);
  tracing.join();
  EXPECT_EQ(outcome.exit_status, 3);
  EXPECT_THAT(outcome.trouble, HasSubstr("the executor of domain local ended meanwhile"));
  const Json parts = File()["otherData"]["gpus"][0]["parts"];
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0]["end"], "executor ended");
  EXPECT_EQ(parts[1]["end"], "whole");
  Stop();
  EXPECT_EQ(Wait(next), 0) << Errors();
}

TEST_F(TraceTest, AnOlderSchedulerIsNamed) {
  std::filesystem::create_directories(state_);
  const control::RecordedScheduler scheduler(
      state_, control::ReadRecording(GPULOOM_GOLDEN "/control_3.2/run_3.3.txt"));
  const Answer outcome = Ask(milliseconds(1));
  EXPECT_EQ(outcome.exit_status, 1) << outcome.trouble;
  EXPECT_THAT(outcome.trouble, HasSubstr("is of an older release, which cannot trace"));
  EXPECT_FALSE(std::filesystem::exists(root_ / "trace.json"));
}

TEST_F(TraceTest, WithoutASchedulerItSaysWhereItHasLooked) {
  const Answer outcome = Ask(milliseconds(1));
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_THAT(outcome.trouble, HasSubstr("no scheduler is found in " + state_.string()));
}

}  // namespace
}  // namespace gpuloom::run
