// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/observer.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <optional>
#include <vector>

#include "agent/metrics/testing/node.h"
#include "agent/testing/full_disk.h"

namespace gpuloom {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class ObserverTest : public MetricsNode {
 protected:
  // An agent's, on the same state.
  std::unique_ptr<Observer> Start() {
    auto observer = std::make_unique<Observer>(Options());
    observer->Load(now_);
    return observer;
  }
  static std::string Kernels(int count) {
    return "gpuloom_namespace_kernels_total{namespace=\"red\"} " + std::to_string(count) + "\n";
  }

  Clock::Time now_{seconds(1'700'000'000)};
};

TEST_F(ObserverTest, ShowsWhatSchedulersReportAndAsksOverOneConnection) {
  const auto observer = Start();
  Report(1, 100);
  observer->Look(now_);
  const auto first = observer->Metrics();
  EXPECT_THAT(*first, HasSubstr(Kernels(10)));
  EXPECT_EQ(observer->Metrics(), first) << "made once";
  Report(3, 101);
  observer->Look(now_ + seconds(1));
  EXPECT_THAT(*observer->Metrics(), HasSubstr(Kernels(30)));
  EXPECT_EQ(connections_, 1);
}

// Schedulers report what was given. An init container's slots pass to the container behind it, and those of a pod that has
// ended are collected later.
TEST_F(ObserverTest, OnlyWhatIsStillHeldIsShownAndCharged) {
  std::map<std::string, uint64_t> held = {{"init", 1}, {"main", 1}, {"ended", 0}};
  Observer::Options options = Options();
  options.node = [&held] {
    NodeFigures node;
    node.slots_held = held;
    return node;
  };
  Observer observer(options);
  observer.Load(now_);
  const auto report = [this](double running_s) {
    std::vector<control::AllocationState> states = {AllocationOf("init", "red", "p"),
                                                    AllocationOf("main", "red", "p"),
                                                    AllocationOf("ended", "red", "before")};
    GpuReport told = ReportOf(states, running_s);
    told.gpu.memory_promised_bytes = 3 * 2048;
    const MutexLock lock(scheduler_->mutex);
    scheduler_->report = told;
  };
  const std::string gpu = ",gpu=\"" + std::string(kGpu) + "\"} ";
  report(100);
  observer.Look(now_);
  EXPECT_THAT(*observer.Metrics(), HasSubstr("pod=\"p\",container=\"main\"" + gpu + "2\n"));
  report(110);
  observer.Look(now_ + seconds(10));
  const std::string metrics = *observer.Metrics();
  EXPECT_THAT(metrics, HasSubstr("gpuloom_namespace_slot_seconds_total{namespace=\"red\"} 20\n"));
  EXPECT_THAT(metrics,
              HasSubstr("gpuloom_namespace_quota_byte_seconds_total{namespace=\"red\"} 20480\n"));
  EXPECT_THAT(metrics, HasSubstr("gpuloom_gpu_memory_promised_bytes{gpu=\"" + std::string(kGpu) +
                                 "\"} 2048\n"));
  // The kubelet lists the pod again: it was a wrong list.
  held["ended"] = 2;
  report(120);
  observer.Look(now_ + seconds(20));
  report(130);
  observer.Look(now_ + seconds(30));
  EXPECT_THAT(*observer.Metrics(),
              HasSubstr("gpuloom_namespace_slot_seconds_total{namespace=\"red\"} 80\n"));
}

TEST_F(ObserverTest, ASchedulerThatIsGoneIsShownAndFoundAgain) {
  const auto observer = Start();
  Report(1, 100);
  observer->Look(now_);
  const std::string up = "gpuloom_gpu_scheduler_up{gpu=\"" + std::string(kGpu) + "\"} ";
  EXPECT_THAT(*observer->Metrics(), HasSubstr(up + "1"));
  {
    const MutexLock lock(scheduler_->mutex);
    scheduler_->report = absl::UnavailableError("scheduler: hung up");
  }
  observer->Look(now_ + seconds(1));
  EXPECT_THAT(*observer->Metrics(), HasSubstr(up + "0"));
  const auto away = std::exchange(scheduler_, nullptr);
  observer->Look(now_ + seconds(2));
  scheduler_ = away;
  Report(1, 2);
  observer->Look(now_ + seconds(3));
  EXPECT_THAT(*observer->Metrics(), HasSubstr(up + "1"));
  EXPECT_THAT(*observer->Metrics(), HasSubstr(Kernels(20)));
  EXPECT_THAT(*observer->Metrics(), HasSubstr("gpuloom_gpu_scheduler_restarts_total{gpu=\"" +
                                              std::string(kGpu) + "\"} 1"));
}

TEST_F(ObserverTest, AnAgentThatIsKilledLosesNothingOfWhatASchedulerHasCounted) {
  Report(1, 100);
  auto observer = Start();
  observer->Look(now_);  // and keeps it
  Report(2, 101);
  observer->Look(now_ + seconds(1));  // and does not
  EXPECT_THAT(*observer->Metrics(), HasSubstr(Kernels(20)));
  observer = Start();
  Report(4, 120);
  observer->Look(now_ + seconds(20));
  EXPECT_THAT(*observer->Metrics(), HasSubstr(Kernels(40)));
}

TEST_F(ObserverTest, NoCounterGoesBackBehindAnAgentThatIsKilledAfterAPodHasEnded) {
  Report(1, 100);
  auto observer = Start();
  observer->Look(now_);  // and keeps it
  Report(2, 101);
  observer->Look(now_ + seconds(1));
  {
    const MutexLock lock(scheduler_->mutex);
    scheduler_->report = ReportOf({}, 102);
  }
  observer->Look(now_ + seconds(2));
  EXPECT_THAT(*observer->Metrics(), HasSubstr(Kernels(20)));
  observer = Start();
  EXPECT_THAT(*observer->Metrics(), HasSubstr(Kernels(20)));
  observer->Look(now_ + seconds(3));
  EXPECT_THAT(*observer->Metrics(), HasSubstr(Kernels(20)));
}

TEST_F(ObserverTest, WhatCannotBeKeptIsShownAllTheSameAndTriedAgain) {
  const auto observer = Start();
  Report(1, 100);
  {
    const FullDisk disk;
    observer->Look(now_);
    EXPECT_THAT(*observer->Metrics(), HasSubstr(Kernels(10)));
  }
  EXPECT_FALSE(std::filesystem::exists(state_ + "/metrics.json"));
  observer->Look(now_ + Observer::kKeepPause);
  EXPECT_TRUE(std::filesystem::exists(state_ + "/metrics.json"));
}

// As of a disk's error. What was counted before and meanwhile is one sum, to the figure.
TEST_F(ObserverTest, ALedgerThatCannotBeReadForAMomentIsNeitherShownNorWrittenOver) {
  const std::string file = state_ + "/metrics.json";
  Report(1, 100);
  Start()->Look(now_);
  std::filesystem::copy_file(file, file + ".as-if-never-away");
  std::filesystem::rename(file, file + ".there");
  std::filesystem::create_symlink(file, file);
  const auto observer = Start();
  for (int i = 2; i < 5; ++i) {
    Report(i, 100 + 10 * i);
    observer->Look(now_ + seconds(10 * i));
    EXPECT_EQ(observer->Metrics(), nullptr);
    EXPECT_THAT(observer->Unread(), HasSubstr(file));
    observer->Keep();
    EXPECT_TRUE(std::filesystem::is_symlink(file));
  }
  std::filesystem::rename(file + ".there", file);
  Report(5, 150);
  observer->Look(now_ + seconds(50));
  const std::string shown = *observer->Metrics();
  EXPECT_EQ(observer->Unread(), "");
  EXPECT_THAT(shown, HasSubstr(Kernels(50)));

  std::filesystem::rename(file + ".as-if-never-away", file);
  const auto other = Start();
  for (int i = 2; i < 6; ++i) {
    Report(i, 100 + 10 * i);
    other->Look(now_ + seconds(10 * i));
  }
  EXPECT_EQ(shown, *other->Metrics());
}

TEST_F(ObserverTest, ALedgerThatStaysUnreadableCanBeMovedAway) {
  const std::string file = state_ + "/metrics.json";
  std::filesystem::create_symlink(file, file);
  Report(1, 100);
  const auto observer = Start();
  observer->Look(now_);
  EXPECT_EQ(observer->Metrics(), nullptr);
  std::filesystem::remove(file);
  observer->Look(now_ + seconds(1));
  EXPECT_THAT(*observer->Metrics(), HasSubstr(Kernels(10)));
}

TEST_F(ObserverTest, WhoEndsIsNotKeptBySchedulersThatHang) {
  const auto observer = Start();
  observer->Interrupt();
  observer->Look(now_);
  EXPECT_EQ(connections_, 0);
  observer->Load(now_);
  observer->Look(now_);
  EXPECT_EQ(connections_, 1);
}

TEST_F(ObserverTest, ADamagedFileIsAnAnewBeginning) {
  std::ofstream(state_ + "/metrics.json") << "half";
  Report(1, 100);
  const auto observer = Start();
  observer->Look(now_);
  EXPECT_THAT(*observer->Metrics(), HasSubstr(Kernels(10)));
}

}  // namespace
}  // namespace gpuloom
