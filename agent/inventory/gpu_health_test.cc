// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/gpu_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <thread>

#include "agent/inventory/testing/driver_gate.h"
#include "agent/testing/clock.h"

namespace gpuloom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char kFirst[] = "GPU-00000000-0000-0000-0000-000000000001";
const char kSecond[] = "GPU-00000000-0000-0000-0000-000000000002";

class GpuHealthTest : public ::testing::Test {
 protected:
  GpuHealth::Options OptionsFor(const std::string& nvml) {
    GpuHealth::Options options;
    options.gpu_uuids = {kFirst, kSecond};
    options.nvml_library = nvml;
    options.probe = [this](const std::string& uuid, const std::atomic<bool>&) {
      probed_.push_back(uuid);
      return ProbeResult{is_known_, trouble_, is_full_};
    };
    options.clock = &clock_;
    return options;
  }

  TestingClock clock_;
  std::vector<std::string> probed_;
  bool is_known_ = true;
  bool is_full_ = false;
  std::string trouble_;
};

TEST_F(GpuHealthTest, OnlyTheGpuThatIsSuspectedIsProbed) {
  GpuHealth health(OptionsFor(""));
  health.Look();
  EXPECT_TRUE(probed_.empty());
  trouble_ = "cuda: no";
  health.Suspect(kSecond);
  health.Suspect("GPU-of-nobody");
  health.Look();
  EXPECT_THAT(probed_, ElementsAre(kSecond));
  EXPECT_EQ(health.Trouble(kFirst), "");
  EXPECT_EQ(health.Trouble(kSecond), "cuda: no");
  trouble_.clear();
  clock_.Advance(Sickness::kFirstPause);
  health.Look();
  EXPECT_EQ(health.Trouble(kSecond), "");
}

TEST_F(GpuHealthTest, WhatAnEarlierAgentKnewIsSickUntilAProbeSucceeds) {
  GpuHealth::Options options = OptionsFor("");
  options.known = {{kSecond, "Xid 48", Sickness::Source::kEvent}};
  GpuHealth health(std::move(options));
  EXPECT_EQ(health.Trouble(kFirst), "");
  EXPECT_EQ(health.Trouble(kSecond), "Xid 48") << "nothing has been looked at yet";
  trouble_ = "cuda: no";
  health.Look();
  EXPECT_THAT(probed_, ElementsAre(kSecond));
  EXPECT_EQ(health.Trouble(kSecond), "Xid 48");
  trouble_.clear();
  clock_.Advance(2 * Sickness::kFirstPause);
  health.Look();
  EXPECT_EQ(health.Trouble(kSecond), "");
}

TEST_F(GpuHealthTest, WhatAnEarlierAgentsProbeSaidGivesWayToWhatANewerOneSays) {
  GpuHealth::Options options = OptionsFor("");
  options.known = {{kSecond, "cuda: before", Sickness::SourceOf("of a later release")}};
  GpuHealth health(std::move(options));
  trouble_ = "cuda: now";
  health.Look();
  EXPECT_EQ(health.Trouble(kSecond), "cuda: now");
  EXPECT_STREQ(Sickness::NameOf(health.Of(kSecond).source()), "probe");
  EXPECT_EQ(Sickness::SourceOf("event"), Sickness::Source::kEvent);
  EXPECT_EQ(Sickness::SourceOf("state"), Sickness::Source::kState);
}

TEST_F(GpuHealthTest, AProbeThatCannotBeMadeSaysNothing) {
  GpuHealth health(OptionsFor(""));
  is_known_ = false;
  trouble_ = "?";
  health.Suspect(kFirst);
  health.Look();
  EXPECT_EQ(health.Trouble(kFirst), "");
  is_known_ = true;
  health.Look();
  EXPECT_EQ(health.Trouble(kFirst), "?");
}

TEST_F(GpuHealthTest, Malicious_AGpuThatIsFullIsNotSick) {
  GpuHealth health(OptionsFor(""));
  is_full_ = true;
  for (int i = 0; i < 3; ++i) {
    health.Suspect(kFirst);
    health.Look();
    EXPECT_EQ(health.Trouble(kFirst), "");
    clock_.Advance(Sickness::kCheckPause);
  }
  EXPECT_THAT(probed_, ElementsAre(kFirst, kFirst, kFirst));
}

TEST_F(GpuHealthTest, WhatTheDriverReportsIsSickUntilAProbeSucceeds) {
  const std::string events = ::testing::TempDir() + "gpu_health_events_" + std::to_string(getpid());
  std::ofstream(events) << "";
  ASSERT_EQ(setenv("GPULOOM_NVML_FIXTURE", events.c_str(), 1), 0);
  GpuHealth health(OptionsFor(GPULOOM_FIXTURES "/libnvml_faults.so"));
  health.Look();
  EXPECT_EQ(health.Trouble(kFirst), "");
  std::ofstream(events) << "xid 1 79\nlost 1\n";
  for (int i = 0; i < 2; ++i) {
    health.Look();
    EXPECT_EQ(health.Trouble(kFirst), "");
    EXPECT_EQ(health.Trouble(kSecond), "Xid 79 (GPU has fallen off the bus)");
  }
  EXPECT_TRUE(probed_.empty()) << "it is known to be sick";
  std::ofstream(events) << "";
  clock_.Advance(Sickness::kFirstPause);
  health.Look();
  EXPECT_EQ(health.Trouble(kSecond), "");
}

class HangingDriver : public GpuHealthTest {
 protected:
  // As an NVML that hangs makes it.
  GpuHealth::Options OptionsOfNvml() {
    GpuHealth::Options options = OptionsFor("");
    options.poll_patience = std::chrono::milliseconds(1);
    options.poll = [gate = gate_] {
      gate->Pass();
      return std::vector<GpuFault>{{kSecond, "Xid 48", /*is_event=*/true}};
    };
    return options;
  }

  std::shared_ptr<DriverGate> gate_ = std::make_shared<DriverGate>();
};

TEST_F(HangingDriver, IsSaidAfterAWhileAndHoldsUpNoProbe) {
  gate_->Hang(true);
  GpuHealth health(OptionsOfNvml());
  EXPECT_EQ(health.DriverTrouble(), "");
  health.Look();
  health.Suspect(kFirst);
  health.Look();
  EXPECT_THAT(probed_, ElementsAre(kFirst));
  clock_.Advance(GpuHealth::kSilence - Clock::Duration(1));
  EXPECT_EQ(health.DriverTrouble(), "");
  clock_.Advance(Clock::Duration(1));
  EXPECT_EQ(health.DriverTrouble(), "") << "an answer may be there: nobody has looked";
  // Whether the GPUs work is for probes to say.
  probed_.clear();
  health.Look();
  EXPECT_THAT(health.DriverTrouble(), HasSubstr("nvml: the driver has not answered for 30 s"));
  for (int i = 0; i < 2; ++i) health.Look();
  EXPECT_THAT(probed_, ElementsAre(kFirst, kSecond));
  EXPECT_EQ(health.Trouble(kSecond), "");
  clock_.Advance(GpuHealth::kSilence);
  health.Look();
  EXPECT_THAT(health.DriverTrouble(), HasSubstr("for 30 s")) << "the same for as long as it lasts";
  EXPECT_THAT(probed_, ElementsAre(kFirst, kSecond)) << "once";

  gate_->Hang(false);
  while (!health.DriverTrouble().empty()) health.Look();
  EXPECT_EQ(health.Trouble(kSecond), "Xid 48") << "what it has to say is heard";
}

TEST_F(HangingDriver, KeepsNobodyWhoEndsAndIsHeardByWhoBeginsAnew) {
  gate_->Hang(true);
  auto health = std::make_unique<GpuHealth>(OptionsOfNvml());
  health->Start();
  gate_->AwaitHang();
  health->Stop();
  // Another agent was in charge meanwhile.
  clock_.Advance(2 * GpuHealth::kSilence);
  health->Start();
  EXPECT_EQ(health->DriverTrouble(), "");
  gate_->Hang(false);
  while (health->Trouble(kSecond).empty()) std::this_thread::yield();
  gate_->Hang(true);
  gate_->AwaitHang();
  health.reset();
  EXPECT_TRUE(FaultPoll::IsOneLeftBehind());
  gate_->Hang(false);
  while (FaultPoll::IsOneLeftBehind()) std::this_thread::yield();
}

TEST_F(GpuHealthTest, TheThreadLooksUntilItIsStopped) {
  GpuHealth::Options options = OptionsFor("");
  std::atomic<int> probes = 0;
  options.probe = [&](const std::string&, const std::atomic<bool>& is_cancelled) {
    ++probes;
    while (!is_cancelled) std::this_thread::yield();  // a driver that hangs
    return ProbeResult{};
  };
  GpuHealth health(std::move(options));
  for (int round = 1; round <= 2; ++round) {
    health.Suspect(kFirst);
    health.Start();
    while (probes < round) std::this_thread::yield();
    EXPECT_EQ(health.Trouble(kFirst), "") << "who asks is not held up";
    health.Stop();
  }
}

}  // namespace
}  // namespace gpuloom
