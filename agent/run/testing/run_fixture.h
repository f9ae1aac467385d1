// SPDX-License-Identifier: Apache-2.0
// For tests: the program as a user runs it, with a real scheduler, executor and software GPU.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace gpuloom::run {

std::string Read(const std::filesystem::path& path);
bool Within(std::chrono::steady_clock::duration limit, const std::function<bool()>& done);

class GpuloomRun : public ::testing::Test {
 protected:
  GpuloomRun();
  ~GpuloomRun() override;

  // Starts `gpuloom run` with the command; its output is added to Output and Errors.
  pid_t Start(std::vector<std::string> command, std::vector<std::string> options = {});
  // The exit status; 1000 + signal when a signal ended it.
  static int Wait(pid_t pid);
  int Run(std::vector<std::string> command, std::vector<std::string> options = {}) {
    return Wait(Start(std::move(command), std::move(options)));
  }
  // Any of its commands.
  int Gpuloom(std::vector<std::string> arguments) { return Wait(Spawn(std::move(arguments))); }
  std::string Output() const { return Read(root_ / "out"); }
  std::string Errors() const { return Read(root_ / "err"); }
  // Somebody holds the lock.
  bool SchedulerRuns() const;
  pid_t SchedulerPid() const { return static_cast<pid_t>(atoi(Read(state_ / "lock").c_str())); }

  std::filesystem::path root_, state_;
  bool softgpu_ = true;

 private:
  pid_t Spawn(std::vector<std::string> arguments);
};

}  // namespace gpuloom::run
