// SPDX-License-Identifier: Apache-2.0
// What `gpuloom tenants`, `gpus`, `refusals` and `version` say of a real scheduler, executor and software GPU.
#include "agent/run/status.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "agent/node/refusal_file.h"
#include "agent/run/testing/run_fixture.h"
#include "proto/control/testing/recording.h"
#include "proto/control/version.h"

namespace gpuloom::run {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class StatusTest : public GpuloomRun {
 protected:
  pid_t Tenant(const std::string& name, const std::vector<std::string>& options = {},
               const std::string& mode = "count") {
    return Start({GPULOOM_PYTHON, GPULOOM_COUNTING_TENANT, mode, root_ / name, root_ / "stop"},
                 options);
  }
  bool HasBegun(const std::string& name) {
    return Within(seconds(60), [&] { return Read(root_ / name).ends_with("\n"); });
  }
  Answer Ask(StatusCommand::About about, Format format = Format::kJson) const {
    return AnswerAboutStatus({about, state_, format});
  }
  Json Of(StatusCommand::About about) const { return Json::parse(Ask(about).text); }
  void Stop() const { std::ofstream(root_ / "stop") << "now"; }
};

TEST_F(StatusTest, TenantsAndWhatTheyHadTheGpuDo) {
  const pid_t one = Tenant("one", {"--slots", "2"}), other = Tenant("other");
  ASSERT_TRUE(HasBegun("one") && HasBegun("other")) << Errors();
  // Executors tell their figures once a second.
  Json tenants;
  ASSERT_TRUE(Within(seconds(60), [&] {
    tenants = Of(StatusCommand::About::kTenants)["tenants"];
    return tenants.size() == 2 && tenants[0]["kernels"] > 0 && tenants[1]["kernels"] > 0 &&
           tenants[0]["gpu_seconds"]["compute"] > 0 && tenants[1]["gpu_seconds"]["compute"] > 0 &&
           tenants[0]["copied_bytes"]["from_device"] > 0 &&
           tenants[1]["copied_bytes"]["from_device"] > 0;
  })) << tenants;
  const Json gpus = Of(StatusCommand::About::kGpus)["gpus"];
  ASSERT_EQ(gpus.size(), 1u) << gpus;
  const Json& gpu = gpus[0];
  std::set<int> slots;
  for (const Json& tenant : tenants) {
    SCOPED_TRACE(tenant.dump());
    EXPECT_EQ(tenant["namespace"], "local");
    EXPECT_EQ(tenant["container"], "python3");
    EXPECT_EQ(tenant["state"], "runs");
    EXPECT_EQ(tenant["processes"], 1);
    EXPECT_EQ(tenant["processes_begun"], 1);
    EXPECT_EQ(tenant["memory_refusals"], 0);
    EXPECT_EQ(tenant["gpu"], gpu["gpu"]);
    EXPECT_GT(tenant["memory_peak_bytes"], 0);
    EXPECT_LE(tenant["memory_peak_bytes"], tenant["memory_quota_bytes"]);
    EXPECT_GT(tenant["copied_bytes"]["from_device"], 0);
    for (const Json& count : tenant["faults"]) EXPECT_EQ(count, 0);
    slots.insert(tenant["slots"].get<int>());
  }
  EXPECT_EQ(slots, (std::set<int>{1, 2}));
  EXPECT_EQ(gpu["tenants"], 2);
  EXPECT_EQ(gpu["processes"], 2);
  EXPECT_EQ(gpu["slots_used"], 3);
  EXPECT_EQ(gpu["executors"], Json({{"now", 1}, {"started", 1}, {"failed", 0}, {"lost", 0}}));
  EXPECT_EQ(gpu["version"], kVersion);
  EXPECT_EQ(gpu["memory_promised_bytes"], tenants[0]["memory_quota_bytes"].get<uint64_t>() +
                                              tenants[1]["memory_quota_bytes"].get<uint64_t>());
  ASSERT_EQ(gpu["trust_domains"].size(), 1u);
  EXPECT_EQ(gpu["trust_domains"][0]["name"], "local");
  // One domain has all that the GPU did, and its tenants together no more.
  EXPECT_EQ(gpu["trust_domains"][0]["busy_seconds"], gpu["busy_seconds"]);
  EXPECT_EQ(gpu["trust_domains"][0]["overruns"], 0);
  EXPECT_EQ(gpu["trust_domains"][0]["overrun_wait_seconds"], 0);
  EXPECT_EQ(gpu["trust_domains"][0]["executors"]["version"], kVersion);
  EXPECT_GT(gpu["busy_seconds"]["compute"], 0);
  EXPECT_LE(gpu["busy_seconds"]["compute"], gpu["running_seconds"]);
  EXPECT_LE(tenants[0]["gpu_seconds"]["compute"].get<double>() +
                tenants[1]["gpu_seconds"]["compute"].get<double>(),
            gpu["busy_seconds"]["compute"].get<double>() + 1e-6);

  EXPECT_EQ(Gpuloom({"tenants", "--state-dir", state_}), 0) << Errors();
  EXPECT_THAT(Output(), HasSubstr("NAMESPACE   POD"));
  EXPECT_THAT(Output(), HasSubstr(tenants[0]["pod"].get<std::string>()));
  EXPECT_EQ(Gpuloom({"gpus", "--state-dir", state_}), 0) << Errors();
  EXPECT_THAT(Output(), HasSubstr(gpu["gpu"].get<std::string>()));
  EXPECT_EQ(Gpuloom({"version", "--state-dir", state_}), 0) << Errors();
  EXPECT_THAT(Output(),
              HasSubstr("scheduler of " + gpu["gpu"].get<std::string>() + ": " + kVersion));
  EXPECT_THAT(Output(), HasSubstr("executors of " + gpu["gpu"].get<std::string>() + ": " +
                                  kVersion + ", of local\n"));
  EXPECT_THAT(Output(), HasSubstr("\ninstalled executor: " + std::string(kVersion) + "\n"));
  EXPECT_THAT(Output(), HasSubstr("\nCUPTI of " + gpu["gpu"].get<std::string>() + ": "));
  EXPECT_THAT(Output(), HasSubstr("\ninstalled CUPTI: "));
  const Json versions = Of(StatusCommand::About::kVersions);
  EXPECT_EQ(versions["agents"], Json::array());
  ASSERT_EQ(versions["schedulers"].size(), 1u) << versions;
  EXPECT_EQ(versions["schedulers"][0]["version"], kVersion);
  EXPECT_EQ(versions["schedulers"][0]["cuda"], "13.0");
  EXPECT_EQ(versions["schedulers"][0]["device"], gpu["name"]);
  ASSERT_EQ(versions["schedulers"][0]["executors"].size(), 1u) << versions;
  const Json& executor = versions["schedulers"][0]["executors"][0];
  EXPECT_EQ(executor["trust_domain"], "local");
  EXPECT_EQ(executor["version"], kVersion);
  EXPECT_NE(executor["cupti"].is_null(), executor["cupti_reason"].is_null()) << executor;
  Stop();
  EXPECT_EQ(Wait(one), 0) << Errors();
  EXPECT_EQ(Wait(other), 0) << Errors();
}

TEST_F(StatusTest, ASuspendedTenantIsSaidToBe) {
  const pid_t one = Tenant("one");
  ASSERT_TRUE(HasBegun("one")) << Errors();
  const std::string pod = Of(StatusCommand::About::kTenants)["tenants"][0]["pod"];
  EXPECT_EQ(Gpuloom({"suspend", "local/" + pod, "--state-dir", state_}), 0) << Errors();
  EXPECT_EQ(Of(StatusCommand::About::kTenants)["tenants"][0]["state"], "suspended");
  EXPECT_EQ(Gpuloom({"resume", "local/" + pod, "--state-dir", state_}), 0) << Errors();
  Stop();
  EXPECT_EQ(Wait(one), 0) << Errors();
}

TEST_F(StatusTest, WhatWasRefusedAndWhyIsOneAnswer) {
  const pid_t refused = Tenant("one", {"--memory", "64MiB"}, "refused");
  const pid_t faulty = Tenant("other", {"--domain", "elsewhere"}, "fault");
  const pid_t good = Tenant("good");
  ASSERT_TRUE(HasBegun("one") && HasBegun("other") && HasBegun("good")) << Errors();
  std::ofstream(RefusalPath(state_))
      << FormatRefusals({{"Allocate", "no such slots\x1b[2J", 3, 9}});
  Json tenants;
  const auto of = [&](const std::string& name) {
    const std::string said = Read(root_ / name), pod = said.substr(0, said.find(' '));
    for (const Json& tenant : tenants) {
      if (tenant["pod"] == pod) return tenant;
    }
    return Json();
  };
  ASSERT_TRUE(Within(seconds(60), [&] {
    tenants = Of(StatusCommand::About::kRefusals)["tenants"];
    return tenants.size() == 2 && of("one")["unsupported_count"] == 1 &&
           of("other")["faults"]["lost_device"] == 1;
  })) << tenants;
  EXPECT_EQ(of("one")["namespace"], "local");
  EXPECT_EQ(of("one")["container"], "python3");
  EXPECT_EQ(of("one")["memory_refusals"], 1);
  EXPECT_EQ(of("one")["memory_quota_bytes"], 64 << 20);
  EXPECT_LE(of("one")["memory_used_bytes"], 64 << 20);
  EXPECT_EQ(of("one")["unsupported"], Json::array({"cuGraphicsUnregisterResource"}));
  EXPECT_EQ(of("one")["faults"]["lost_device"], 0);
  EXPECT_EQ(of("other")["memory_refusals"], 0);
  EXPECT_EQ(of("other")["latest_fault"],
            "the device context was lost with CUDA_ERROR_ILLEGAL_ADDRESS (700) by kernel fault");

  EXPECT_EQ(Gpuloom({"refusals", "--state-dir", state_}), 0) << Errors();
  EXPECT_THAT(Output(), HasSubstr("1970-01-01 00:00:09   3       Allocate   -"));
  EXPECT_THAT(Output(), HasSubstr("no such slots\\x1b[2J\n"));
  EXPECT_THAT(Output(), HasSubstr("/python3   beyond its quota of 64.0MiB; it uses "));
  EXPECT_THAT(Output(), HasSubstr("/python3   not supported: cuGraphicsUnregisterResource\n"));
  EXPECT_THAT(Output(), HasSubstr("/python3   lost_device: the device context was lost with "
                                  "CUDA_ERROR_ILLEGAL_ADDRESS (700) by kernel fault\n"));
  Stop();
  for (const pid_t tenant : {refused, faulty, good}) EXPECT_EQ(Wait(tenant), 0) << Errors();
}

TEST_F(StatusTest, TheDoctorFindsNothingWrongWithARunningOne) {
  const pid_t one = Tenant("one");
  ASSERT_TRUE(HasBegun("one")) << Errors();
  EXPECT_EQ(
      Gpuloom({"doctor", "--state-dir", state_, "--kubelet-dir", root_ / "none", "-o", "json"}), 0)
      << Output();
  std::set<std::string> checks;
  const Json document = Json::parse(Output());
  for (const Json& finding : document["findings"]) {
    // Whatever this machine's kernel and driver are.
    if (finding["verdict"] == "ok") checks.insert(finding["check"]);
  }
  for (const char* check : {"state folder", "schedulers", "installation", "kubelet"}) {
    EXPECT_TRUE(checks.contains(check)) << document;
  }
  Stop();
  EXPECT_EQ(Wait(one), 0) << Errors();
}

TEST_F(StatusTest, AnOlderSchedulerSaysWhatItKnows) {
  std::filesystem::create_directories(state_);
  const control::Recording recording =
      control::ReadRecording(GPULOOM_GOLDEN "/control_3.1/run_3.2.txt");
  const control::RecordedScheduler scheduler(state_, recording);
  const Answer answer = Ask(StatusCommand::About::kTenants);
  EXPECT_EQ(answer.exit_status, 0) << answer.trouble;
  const Json tenants = Json::parse(answer.text)["tenants"];
  ASSERT_EQ(tenants.size(), 1u) << answer.text;
  EXPECT_EQ(tenants[0]["namespace"], "local");
  EXPECT_EQ(tenants[0]["gpu"], "state");
  EXPECT_FALSE(tenants[0].contains("gpu_seconds")) << "a figure that it does not know is left out";
  EXPECT_FALSE(scheduler.was_surprised());
}

// What a script took for the whole answer.
TEST_F(StatusTest, AnAnswerThatFindsNoRoomIsAnError) {
  const std::string command = std::string(GPULOOM_PROGRAM) + " version --state-dir " +
                              state_.string() + " > /dev/full 2> " + (root_ / "err").string();
  EXPECT_EQ(WEXITSTATUS(system(command.c_str())), kNotGood);
  EXPECT_THAT(Errors(), HasSubstr("gpuloom: the answer could not be written whole: No space left"));
}

TEST_F(StatusTest, WithoutASchedulerItSaysWhereItHasLooked) {
  const Answer answer = Ask(StatusCommand::About::kTenants);
  EXPECT_EQ(answer.exit_status, 1);
  EXPECT_THAT(answer.trouble, HasSubstr("no scheduler is found in " + state_.string()));
  EXPECT_EQ(Json::parse(answer.text), Json({{"tenants", Json::array()}}));
  const Answer refusals = Ask(StatusCommand::About::kRefusals);
  EXPECT_EQ(refusals.exit_status, 1);
  EXPECT_EQ(Json::parse(refusals.text),
            Json({{"refusals", Json::array()}, {"tenants", Json::array()}}));
  // What it is itself it knows all the same.
  EXPECT_EQ(Ask(StatusCommand::About::kVersions).exit_status, 0);
  EXPECT_EQ(Gpuloom({"gpus", "-o", "xml"}), 2);
  EXPECT_THAT(Errors(), HasSubstr("xml"));
}

}  // namespace
}  // namespace gpuloom::run
