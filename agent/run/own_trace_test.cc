// SPDX-License-Identifier: Apache-2.0
// gpuloom-trace, in a tenant's place, beside a real scheduler, executors and neighbours of the software GPU.
#include <stdlib.h>
#include <sys/wait.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "agent/run/testing/run_fixture.h"

namespace gpuloom::run {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class OwnTraceTest : public GpuloomRun {
 protected:
  // The mode is its kernel's name, too.
  pid_t Tenant(const std::string& name, const std::string& mode, std::vector<std::string> options) {
    return Start({GPULOOM_PYTHON, GPULOOM_COUNTING_TENANT, mode, root_ / name, root_ / "stop"},
                 std::move(options));
  }
  bool HasBegun(const std::string& name) {
    return Within(seconds(60), [&] { return Read(root_ / name).ends_with("\n"); });
  }
  // As a process of the tenant's container asks. The exit status.
  int Trace(const std::string& name, const std::string& arguments) const {
    const std::string progress = Read(root_ / name);
    const std::string folder = state_ / progress.substr(0, progress.find(' '));
    const int status = system(("GPULOOM_SOCKET_DIR='" + folder + "' '" GPULOOM_TRACE "' " +
                               arguments + " 2>>'" + (root_ / "err").string() + "'")
                                  .c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
  }
  std::string Output(const char* file) const { return "-o '" + (root_ / file).string() + "'"; }
  void Stop(std::vector<pid_t> tenants) const {
    std::ofstream(root_ / "stop") << "now";
    for (const pid_t tenant : tenants) EXPECT_EQ(Wait(tenant), 0) << Errors();
  }
};

TEST_F(OwnTraceTest, HasOnlyTheTenantsOwnKernelsBesideANeighbour) {
  const pid_t one = Tenant("one", "count", {"--trace", "own"});
  const pid_t neighbour = Tenant("neighbour", "tally", {});
  ASSERT_TRUE(HasBegun("one") && HasBegun("neighbour")) << Errors();
  std::string before;
  // Again where the machine stood still meanwhile, which the pause after a trace allows after a while.
  ASSERT_TRUE(Within(seconds(180),
                     [&] {
                       before = Read(root_ / "neighbour");
                       if (Trace("one", "--seconds 3 " + Output("trace.json")) != 0) {
                         std::this_thread::sleep_for(seconds(1));
                         return false;
                       }
                       Json traced = Json::parse(Read(root_ / "trace.json"));
                       const Json sessions = traced["otherData"]["gpus"][0]["parts"][0]["sessions"];
                       return Read(root_ / "neighbour") != before && sessions.size() == 1 &&
                              sessions[0]["kernels"] > 0;
                     }))
      << "both ran meanwhile: " << Errors();
  EXPECT_THAT(Errors(), HasSubstr("recorded by the executor, begin estimated"));
  const std::string text = Read(root_ / "trace.json");
  EXPECT_THAT(text, Not(HasSubstr("tally")));
  EXPECT_THAT(text, Not(HasSubstr(before.substr(0, before.find(' ')))));
  const Json json = Json::parse(text);
  const Json part = json["otherData"]["gpus"][0]["parts"][0];
  EXPECT_EQ(part["source"], "executor");
  EXPECT_EQ(part["dropped"], 0);
  ASSERT_EQ(part["sessions"].size(), 1u);
  EXPECT_GT(part["sessions"][0]["pid"], 0);
  EXPECT_GT(part["sessions"][0]["kernels"], 0);
  EXPECT_GE(part["seconds"], 3.0);
  std::set<std::string> kernels, processes;
  for (const Json& event : json["traceEvents"]) {
    if (event["name"] == "process_name") processes.insert(event["args"]["name"]);
    if (event["ph"] == "X" && event["cat"] == "kernel") kernels.insert(event["name"]);
  }
  EXPECT_EQ(kernels, (std::set<std::string>{"count"}));
  EXPECT_EQ(
      processes,
      (std::set<std::string>{"process " + std::to_string(part["sessions"][0]["pid"].get<int>())}));
  Stop({one, neighbour});
}

TEST_F(OwnTraceTest, UnlessItIsAllowedItIsRefused) {
  const pid_t one = Tenant("one", "count", {});
  ASSERT_TRUE(HasBegun("one")) << Errors();
  EXPECT_EQ(Trace("one", "--seconds 1 " + Output("trace.json")), 1);
  EXPECT_THAT(Errors(), HasSubstr("gpuloom-trace: the policy does not let this container trace"));
  EXPECT_EQ(Read(root_ / "trace.json"), "");
  Stop({one});
}

TEST_F(OwnTraceTest, ASecondOneIsRefusedAndTheFirstGoesOn) {
  const char kAlready[] = "this container is being traced already";
  std::vector<pid_t> tenants;
  // Where the machine stands still for so long that the first one is over before, another tenant traces for longer.
  for (const char* length : {"3", "15", "45"}) {
    const std::string one = std::string("one") + length;
    tenants.push_back(Tenant(one, "count", {"--trace", "own"}));
    ASSERT_TRUE(HasBegun(one)) << Errors();
    int first = -1;
    std::thread tracing([&] {
      first = Trace(one, std::string("--seconds ") + length + " " + Output("first.json"));
    });
    const std::string begins = std::string("traces itself for ") + length + "000 ms";
    EXPECT_TRUE(Within(seconds(60), [&] {
      return Read(state_ / "scheduler.log").find(begins) != std::string::npos;
    }));
    EXPECT_EQ(Trace(one, "--seconds 1 " + Output("second.json")), 1);
    tracing.join();
    EXPECT_EQ(first, 0) << Errors();
    EXPECT_TRUE(Json::accept(Read(root_ / "first.json")));
    EXPECT_EQ(Trace(one, "--seconds 1 " + Output("third.json")), 1);
    EXPECT_THAT(Errors(), HasSubstr("this container has traced just now: it may again in"));
    if (Errors().find(kAlready) != std::string::npos) break;
  }
  EXPECT_THAT(Errors(), HasSubstr(kAlready));
  Stop(tenants);
}

TEST_F(OwnTraceTest, AsAUserRunsIt) {
  // It is in the command's PATH.
  EXPECT_EQ(Run({"gpuloom-trace", "--seconds", "1", "-o", root_ / "x"}, {"--trace", "own"}), 1);
  EXPECT_THAT(Errors(), HasSubstr("no program of this container uses the GPU now: start it first"));
  EXPECT_EQ(Run({"true"}, {"--trace", "all"}), 2);
  EXPECT_THAT(Errors(), HasSubstr("'all': write none or own"));
  std::filesystem::remove(root_ / "x");
  for (const char* wrong :
       {"", "--seconds 1", "-o x", "--seconds", "--seconds 0 -o x", "--seconds 61 -o x",
        "--seconds nan -o x", "--seconds soon -o x", "--minutes 1 -o x"}) {
    EXPECT_EQ(Trace("nobody", wrong), 2) << wrong;
  }
  EXPECT_FALSE(std::filesystem::exists("x"));
  EXPECT_EQ(Trace("nobody", "--help >/dev/null"), 0);
  EXPECT_EQ(Trace("nobody", "--seconds 1 -o /nowhere/trace"), 1);
  EXPECT_THAT(Errors(), HasSubstr("/nowhere/trace: No such file"));
  EXPECT_EQ(Trace("nobody", "--seconds 1 -o /dev/null"), 1);
  EXPECT_THAT(Errors(), HasSubstr("cannot connect to"));
}

}  // namespace
}  // namespace gpuloom::run
