// SPDX-License-Identifier: Apache-2.0
#include "agent/run/testing/run_fixture.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "proto/channel/unique_fd.h"

namespace gpuloom::run {

std::string Read(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

bool Within(std::chrono::steady_clock::duration limit, const std::function<bool()>& done) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

GpuloomRun::GpuloomRun() {
  char name[] = "/tmp/gpuloom-run-test-XXXXXX";
  root_ = mkdtemp(name);
  state_ = root_ / "state";
}

GpuloomRun::~GpuloomRun() {
  EXPECT_TRUE(Within(std::chrono::seconds(60), [&] { return !SchedulerRuns(); }))
      << "a scheduler is left";
  std::filesystem::remove_all(root_);
}

pid_t GpuloomRun::Start(std::vector<std::string> command, std::vector<std::string> options) {
  std::vector<std::string> arguments = {"run", "--state-dir", state_};
  if (softgpu_) arguments.push_back("--softgpu");
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.push_back("--");
  arguments.insert(arguments.end(), command.begin(), command.end());
  return Spawn(std::move(arguments));
}

pid_t GpuloomRun::Spawn(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), GPULOOM_PROGRAM);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::string out = root_ / "out", err = root_ / "err";
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  pid_t pid = 0;
  EXPECT_EQ(posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

int GpuloomRun::Wait(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

bool GpuloomRun::SchedulerRuns() const {
  const channel::UniqueFd lock(open((state_ / "lock").c_str(), O_RDWR | O_CLOEXEC));
  return lock.valid() && flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
}

}  // namespace gpuloom::run
