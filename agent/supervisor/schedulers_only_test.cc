// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/schedulers_only.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

// Asks to stop once the scheduler is ready. Sleeps a little of real time each time; what is asked
// for passes only when stopping, and only where a test wants it to.
class StoppingClock : public Clock {
 public:
  StoppingClock(std::string ready, bool passes, std::atomic<bool>* stop_requested)
      : ready_(std::move(ready)), passes_(passes), stop_requested_(stop_requested) {}
  Time Now() override { return now_; }
  void SleepFor(Duration duration) override {
    if (passes_ && *stop_requested_) now_ += duration;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (fs::exists(ready_)) *stop_requested_ = true;
  }

 private:
  const std::string ready_;
  const bool passes_;
  std::atomic<bool>* const stop_requested_;
  Time now_;
};

class SchedulersOnly : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "schedulersXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    state_ = name;
  }
  void TearDown() override { fs::remove_all(state_); }

  // A scheduler whose life is a shell script.
  void Run(const std::string& script, bool time_passes) {
    Supervisor::Options options;
    options.state_directory = state_;
    options.command = [&](const std::string&, const std::string& directory) {
      return std::vector<std::string>{"/bin/sh", "-c", script, "sh", directory};
    };
    options.connect = [](const std::string&) { return absl::NotFoundError("nobody listens"); };
    Supervisor supervisor(std::move(options));
    ASSERT_TRUE(supervisor.AddGpu("GPU-1").ok());
    std::atomic<bool> stop_requested = false;
    StoppingClock clock(Directory() + "/ready", time_passes, &stop_requested);
    RunSchedulersOnly(
        &supervisor, &clock, [&] { each_time_(&supervisor); }, stop_requested);
    is_any_running_ = supervisor.IsAnyRunning();
  }
  std::string Directory() { return state_ + "/gpus/GPU-1"; }

  std::string state_;
  std::function<void(Supervisor*)> each_time_ = [](Supervisor*) {};
  bool is_any_running_ = true;
};

TEST_F(SchedulersOnly, EndInOrderWhenAskedToStop) {
  Run("trap 'touch $1/ended; exit 0' TERM; touch $1/ready; while :; do sleep 0.01; done",
      /*time_passes=*/false);
  EXPECT_FALSE(is_any_running_);
  EXPECT_TRUE(fs::exists(Directory() + "/ended"));
}

// One that was lost when the others began.
TEST_F(SchedulersOnly, AGpuThatComesLaterGetsOneAndTheOthersGoOn) {
  each_time_ = [this](Supervisor* supervisor) {
    if (!fs::exists(Directory() + "/begun")) return;
    EXPECT_TRUE(supervisor->AddGpu("GPU-2").ok());
  };
  Run("echo begun >> $1/begun; case $1 in *GPU-2) touch $1/../GPU-1/ready;; esac;"
      "trap 'exit 0' TERM; while :; do sleep 0.01; done",
      /*time_passes=*/false);
  EXPECT_FALSE(is_any_running_);
  std::ifstream begun(Directory() + "/begun");
  std::string line;
  EXPECT_TRUE(std::getline(begun, line));
  EXPECT_FALSE(std::getline(begun, line)) << "it was started once";
}

TEST_F(SchedulersOnly, AGpuThatIsGoneGetsNoneAnyMoreAndTheOthersGoOn) {
  bool was_removed = false;
  each_time_ = [&](Supervisor* supervisor) {
    if (was_removed || !fs::exists(Directory() + "/begun")) return;
    EXPECT_TRUE(supervisor->AddGpu("GPU-2").ok());
    if (!fs::exists(state_ + "/gpus/GPU-2/begun")) return;
    // Until the one that was started has ended.
    supervisor->RemoveGpu("GPU-2");
    was_removed = absl::IsNotFound(supervisor->Client("GPU-2").status());
    if (was_removed) std::ofstream(Directory() + "/ready") << "x";
  };
  Run("echo begun >> $1/begun; case $1 in *GPU-2) exit 1;; esac;"
      "trap 'touch $1/ended; exit 0' TERM; while :; do sleep 0.01; done",
      /*time_passes=*/false);
  EXPECT_FALSE(is_any_running_);
  EXPECT_TRUE(fs::exists(Directory() + "/ended"));
}

TEST_F(SchedulersOnly, AreNotWaitedForForEver) {
  Run("trap '' TERM; echo $$ > $1/pid; touch $1/ready; while :; do sleep 0.01; done",
      /*time_passes=*/true);
  EXPECT_TRUE(is_any_running_);
  pid_t pid = 0;
  std::ifstream(Directory() + "/pid") >> pid;
  ASSERT_GT(pid, 0);
  kill(pid, SIGKILL);
}

}  // namespace
}  // namespace gpuloom
