// SPDX-License-Identifier: Apache-2.0
// Nodes whose agent or schedulers are gone: what commands say of them.
#include "agent/run/scheduler_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "agent/node/lock_file.h"
#include "agent/run/drain.h"
#include "agent/run/running_tenants.h"
#include "agent/run/status.h"
#include "agent/run/suspend.h"
#include "proto/channel/socket.h"
#include "proto/control/testing/recording.h"

namespace gpuloom::run {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using About = StatusCommand::About;

// A scheduler of a GPU without tenants.
control::Recording Idle(const char* uuid) {
  control::Answer yes{};
  yes.ok = 1;
  yes.major = control::kControlMajor;
  yes.minor = control::kControlMinor;
  control::GpuState gpu{};
  control::SetText(gpu.uuid, uuid);
  return {control::MakeRecorded(
              false, control::ControlHello{control::kControlMajor, control::kControlMinor}),
          control::MakeRecorded(true, yes),
          control::MakeRecorded(false, control::ListAllocations{}),
          control::MakeRecorded(true, yes),
          control::MakeRecorded(false, control::DescribeGpu{}),
          control::MakeRecorded(true, gpu),
          control::MakeRecorded(true, yes)};
}

// An agent's state: GPU-1 has a scheduler, that of GPU-2 was killed, GPU-3 never had one.
class SchedulerFiguresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    state_ = "/tmp/gpuloom-figures-XXXXXX";
    ASSERT_NE(mkdtemp(state_.data()), nullptr);
    for (const char* gpu : {"GPU-1", "GPU-2", "GPU-3"}) fs::create_directories(Folder(gpu));
    scheduler_.emplace(Folder("GPU-1"), Idle("GPU-1"));
    (void)channel::ListenAt((Folder("GPU-2") + "/control.sock").c_str());
  }
  void TearDown() override { fs::remove_all(state_); }

  std::string Folder(const std::string& gpu) const { return FolderOfGpu(state_, gpu); }
  Answer Ask(About about, Format format = Format::kTable) const {
    return AnswerAboutStatus({about, state_, format});
  }
  void WriteStanding(GpuState state, const std::string& reason) const {
    GpuStanding standing;
    standing.state = state;
    standing.reason = reason;
    std::ofstream(StandingPath(Folder("GPU-1"))) << FormatStanding(standing);
  }

  // Of a container that has a slot, in the agent's words.
  void WriteRecord(const std::string& gpu) const {
    fs::create_directories(state_ + "/records");
    std::ofstream(state_ + "/records/" + gpu + ".yaml")
        << "name: \"" << gpu << "\"\ngpu: \"" << gpu << "\"\ndevices: [\"a\"]\nbinding:\n"
        << "  namespace: \"team-a\"\n  pod: \"train-7\"\n  container: \"main\"\n"
        << "  quotaBytes: 2097152\n  boundAtMs: 1700000000000\n";
  }

  std::string state_;
  std::optional<control::RecordedScheduler> scheduler_;
};

TEST_F(SchedulerFiguresTest, AGpuOfAnAgentWithoutAScheduler) {
  const AllFigures all = AskSchedulers(state_);
  ASSERT_EQ(all.schedulers.size(), 1u);
  EXPECT_EQ(all.schedulers[0].name(), "GPU-1");
  EXPECT_THAT(all.troubles, ElementsAre());
  EXPECT_THAT(all.missing, ElementsAre(Folder("GPU-2"), Folder("GPU-3")));
  EXPECT_FALSE(all.none_found);
  for (const About about : {About::kTenants, About::kGpus, About::kRefusals, About::kVersions}) {
    const Answer answer = Ask(about);
    EXPECT_EQ(answer.exit_status, kNotGood);
    EXPECT_THAT(answer.trouble,
                AllOf(HasSubstr("gpuloom: no scheduler runs for GPU-2, whose pods have no GPU: "
                                "gpuloom doctor says what to do\n"),
                      HasSubstr("gpuloom: no scheduler runs for GPU-3,"), Not(HasSubstr("GPU-1"))));
  }
  EXPECT_THAT(RunningTenants(state_).troubles, ::testing::Contains(HasSubstr("runs for GPU-2")));
}

TEST_F(SchedulerFiguresTest, WithoutAnySchedulerNoOtherFolderIsAskedFor) {
  scheduler_.reset();
  EXPECT_FALSE(AskSchedulers(state_).none_found);
  EXPECT_THAT(Ask(About::kTenants).trouble,
              AllOf(HasSubstr("no scheduler runs for GPU-1,"), Not(HasSubstr("--state-dir"))));
}

TEST_F(SchedulerFiguresTest, APodThatIsNotFoundMayBeWhereNoSchedulerRuns) {
  SuspendCommand command;
  command.state_dir = state_;
  command.pod_namespace = "team-a";
  command.pod = "train-7";
  Answer answer = Suspend(command);
  EXPECT_EQ(answer.exit_status, kNotGood);
  EXPECT_THAT(answer.trouble,
              AllOf(HasSubstr("gpuloom: no scheduler runs for GPU-2,"),
                    HasSubstr("gpuloom: team-a/train-7 has no GPU on this node; nobody has\n")));
  scheduler_.reset();
  answer = Suspend(command);
  EXPECT_EQ(answer.exit_status, kNotGood);
  EXPECT_THAT(answer.trouble,
              AllOf(HasSubstr("no scheduler runs for GPU-1,"), Not(HasSubstr("--state-dir"))));
}

TEST_F(SchedulerFiguresTest, AFolderThatACommandHasLeftBehindIsNoGpu) {
  const std::string runs = state_ + "/runs";
  fs::create_directories(runs + "/0");
  (void)channel::ListenAt((runs + "/0/control.sock").c_str());
  EXPECT_TRUE(AskSchedulers(runs).none_found);
}

TEST_F(SchedulerFiguresTest, ADrainedGpuWithoutASchedulerMayStillBeHeld) {
  DrainCommand command;
  command.state_dir = state_;
  command.gpu = "GPU-2";
  const OnLine nobody = [](const std::string&) {};
  const Answer answer = Drain(command, nobody);
  EXPECT_EQ(answer.exit_status, kGood) << "it is drained";
  EXPECT_EQ(answer.text, "GPU-2 is drained by operator\nnobody is there any more\n");
  EXPECT_EQ(answer.trouble, "gpuloom: no scheduler runs for GPU-2, so nobody computes there\n");
  WriteRecord("GPU-2");
  EXPECT_THAT(Drain(command, nobody).trouble, HasSubstr("1 tenant is still there"));
  command.gpu = "GPU-1";
  EXPECT_THAT(Drain(command, nobody).text, HasSubstr("nobody is there any more"));
}

// Until the agent has told it, and for ever where none is in charge.
TEST_F(SchedulerFiguresTest, ASchedulerThatHasJustStartedAgainIsNotWhoSaysThatNobodyIsThere) {
  WriteRecord("GPU-1");
  DrainCommand drain;
  drain.state_dir = state_;
  drain.gpu = "GPU-1";
  drain.wait = true;
  drain.timeout = std::chrono::milliseconds(1);
  std::string told;
  const Answer drained = Drain(drain, [&](const std::string& line) { told += line; });
  EXPECT_EQ(drained.exit_status, kPartly);
  EXPECT_EQ(told, "waits for pods that hold slots: team-a/train-7/main");

  const Answer tenants = Ask(About::kTenants);
  EXPECT_EQ(tenants.exit_status, kNotGood);
  EXPECT_THAT(tenants.text, ::testing::ContainsRegex(
                                "team-a +train-7 +main +GPU-1 +1 +-/2.0MiB .* not served\n"));
  EXPECT_THAT(tenants.trouble,
              HasSubstr("the scheduler of GPU-1 does not know who holds slots there: "
                        "team-a/train-7/main; the agent tells it within seconds"));
  const Json tenant = Json::parse(Ask(About::kTenants, Format::kJson).text)["tenants"][0];
  EXPECT_EQ(tenant["pod"], "train-7");
  EXPECT_EQ(tenant["state"], "not served");
  EXPECT_FALSE(tenant.contains("memory_used_bytes"));
  std::ofstream(state_ + "/agent.lock") << "1\n";
  EXPECT_THAT(Ask(About::kTenants).trouble, HasSubstr("no agent is in charge, and only the agent"));

  GpuStanding standing;
  standing.slots = 10;
  std::ofstream(StandingPath(Folder("GPU-1"))) << FormatStanding(standing);
  const Running running = RunningTenants(state_);
  ASSERT_EQ(running.tenants.size(), 1u);
  EXPECT_EQ(running.tenants[0].pod, "train-7");
  EXPECT_EQ(running.tenants[0].memory_quota_bytes, 2097152u);
  EXPECT_THAT(running.troubles, ::testing::Contains(HasSubstr("does not know who holds slots")));
}

TEST_F(SchedulerFiguresTest, AGpuWhoseSchedulerIsSilentHasARowOfWhatItsFolderSays) {
  GpuStanding standing;
  standing.state = GpuState::kUnavailable;
  standing.reason = "scheduler has not answered for 10 s";
  standing.slots = 10;
  standing.held = 3;
  std::ofstream(StandingPath(Folder("GPU-2"))) << FormatStanding(standing);
  const Answer gpus = Ask(About::kGpus);
  EXPECT_EQ(gpus.exit_status, kNotGood);
  EXPECT_THAT(gpus.text,
              ::testing::ContainsRegex("GPU-2 +- +- +- +- +- +- +3/10 +- +- +- +unavailable: "
                                       "scheduler has not answered for 10 s\nGPU-3 +- .* its "
                                       "scheduler does not answer\n"));
  const Json document = Json::parse(Ask(About::kGpus, Format::kJson).text)["gpus"];
  ASSERT_EQ(document.size(), 3u);
  EXPECT_EQ(document[0]["answers"], true);
  EXPECT_EQ(document[1]["gpu"], "GPU-2");
  EXPECT_EQ(document[1]["answers"], false);
  EXPECT_EQ(document[1]["memory_bytes"], nullptr);
  EXPECT_EQ(document[1]["state"], "unavailable");
  EXPECT_EQ(document[1]["slots"]["held"], 3);
  EXPECT_FALSE(document[1].contains("tenants"));
  // What the agent has not noticed yet.
  standing.state = GpuState::kHealthy;
  std::ofstream(StandingPath(Folder("GPU-2"))) << FormatStanding(standing);
  EXPECT_THAT(Ask(About::kGpus).text, HasSubstr("healthy, its scheduler does not answer\n"));
}

TEST_F(SchedulerFiguresTest, ANodeWithoutAGpuIsNotBroken) {
  scheduler_.reset();
  fs::remove_all(state_ + "/gpus");
  EXPECT_EQ(Ask(About::kGpus).exit_status, kNotGood) << "no agent has ever looked";
  std::ofstream(state_ + "/agent.lock") << "1\n";
  for (const bool has_folder : {false, true}) {
    if (has_folder) fs::create_directories(state_ + "/gpus");
    for (const About about : {About::kTenants, About::kGpus, About::kRefusals, About::kVersions}) {
      const Answer answer = Ask(about);
      EXPECT_EQ(answer.exit_status, kGood) << answer.trouble;
      EXPECT_EQ(answer.trouble, "gpuloom: this node has no GPU to share\n");
    }
    EXPECT_THAT(RunningTenants(state_).troubles, ElementsAre());
    SuspendCommand suspend;
    suspend.state_dir = state_;
    EXPECT_EQ(Suspend(suspend).trouble, "gpuloom: this node has no GPU to share\n");
  }
}

TEST_F(SchedulerFiguresTest, WhatAnAgentThatIsGoneHasSaidIsSaidToBeOld) {
  WriteStanding(GpuState::kHealthy, "");
  LockFile lock = TakeLock(state_ + "/agent.lock", "1.2.3");
  ASSERT_TRUE(lock.fd.valid());
  EXPECT_THAT(Ask(About::kGpus).text, Not(HasSubstr("no agent")));
  lock.fd.Reset();
  EXPECT_THAT(Ask(About::kGpus).text,
              HasSubstr("no agent is in charge; the last one said: healthy"));
  const Json gpu = Json::parse(Ask(About::kGpus, Format::kJson).text)["gpus"][0];
  EXPECT_EQ(gpu["state"], "healthy");
  EXPECT_EQ(gpu["state_is_current"], false);
  // An operator's order needs no agent.
  std::string error;
  ASSERT_TRUE(WriteDrainOrder(Folder("GPU-1"), {1, "fans"}, &error)) << error;
  EXPECT_THAT(Ask(About::kGpus).text,
              AllOf(HasSubstr("drained by operator: fans"), Not(HasSubstr("no agent"))));
}

TEST_F(SchedulerFiguresTest, AStateIsSinceAWallTimeAfterTheMachinesClockWasSet) {
  GpuStanding standing;
  standing.state = GpuState::kSick;
  standing.since_unix_s = 1'700'000'000;
  std::ofstream(StandingPath(Folder("GPU-1"))) << FormatStanding(standing);
  const auto since = [&]() -> int64_t {
    return Json::parse(Ask(About::kGpus, Format::kJson).text)["gpus"][0]["state_since"];
  };
  EXPECT_EQ(since(), 1'700'000'000);
  // The agent's clock began this boot in 1970.
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::ofstream(state_ + "/clock.yaml") << "boot: \"" << boot << "\"\nsinceBootMs: 0\ntimeMs: 0\n";
  EXPECT_GT(since(), 3'000'000'000);
}

}  // namespace
}  // namespace gpuloom::run
