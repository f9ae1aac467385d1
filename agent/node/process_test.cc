// SPDX-License-Identifier: Apache-2.0
#include "agent/node/process.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "proto/channel/unique_fd.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

class ProcessTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "processXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    log_ = folder_ + "/log";
  }
  void TearDown() override { fs::remove_all(folder_); }

  static int Wait(pid_t pid) {
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return status;
  }
  std::string Log() const {
    std::ifstream file(log_);
    return std::string((std::istreambuf_iterator<char>(file)), {});
  }

  std::string folder_;
  std::string log_;
};

TEST_F(ProcessTest, DescriptorsComeInTheirOrderWhateverTheirNumbers) {
  const channel::UniqueFd log(open(log_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  int pipes[2][2];
  for (auto& ends : pipes) ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ProcessStart start;
  start.arguments = {"/bin/sh", "-c", "echo first >&3; echo second >&4; ls /proc/self/fd | wc -l"};
  start.environment = environ;
  start.output = log.get();
  // In an order in which one has, likely, the number that the other is to get.
  start.descriptors = {pipes[1][1], pipes[0][1]};
  pid_t pid = 0;
  ASSERT_EQ(StartProcess(start, &pid), 0);
  EXPECT_EQ(ExitText(Wait(pid)), kEndedWell);
  const char* const expected[] = {"second\n", "first\n"};
  for (int i = 0; i < 2; ++i) {
    close(pipes[i][1]);
    char text[64] = {};
    EXPECT_GT(read(pipes[i][0], text, sizeof(text) - 1), 0);
    EXPECT_STREQ(text, expected[i]);
    close(pipes[i][0]);
  }
  EXPECT_EQ(Log(), "6\n") << "0, 1, 2, these two, and the folder that ls reads";
}

TEST_F(ProcessTest, IsInAGroupOfItsOwnOrASessionOfItsOwn) {
  const channel::UniqueFd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  for (const bool has_own_session : {false, true}) {
    ProcessStart start;
    start.arguments = {"/bin/sleep", "600"};
    start.environment = environ;
    start.output = null.get();
    start.has_own_session = has_own_session;
    pid_t pid = 0;
    ASSERT_EQ(StartProcess(start, &pid), 0);
    EXPECT_EQ(getpgid(pid), pid);
    EXPECT_EQ(getsid(pid) == pid, has_own_session);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    EXPECT_EQ(ExitText(Wait(pid)), "killed by signal 9 (SIGKILL)");
  }
}

TEST_F(ProcessTest, SignalsAreNeitherBlockedNorIgnored) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ASSERT_EQ(sigprocmask(SIG_BLOCK, &blocked, &before), 0);
  const auto handler = signal(SIGPIPE, SIG_IGN);
  for (const char* name : {"PIPE", "TERM"}) {
    pid_t pid = 0;
    ASSERT_EQ(StartDetached({"/bin/sh", "-c", std::string("kill -") + name + " $$; echo goes on"},
                            environ, log_, &pid),
              0);
    EXPECT_NE(ExitText(Wait(pid)).find(name), std::string::npos) << Log();
  }
  signal(SIGPIPE, handler);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(ProcessTest, ADetachedOneAppendsToItsLog) {
  std::ofstream(log_) << "before\n";
  pid_t pid = 0;
  ASSERT_EQ(
      StartDetached({"/bin/sh", "-c", "echo out; echo error >&2; exit 3"}, environ, log_, &pid), 0);
  EXPECT_EQ(ExitText(Wait(pid)), "exited with status 3");
  EXPECT_EQ(Log(), "before\nout\nerror\n");
}

TEST_F(ProcessTest, OwnProgramIsTheOneThatRuns) {
  EXPECT_TRUE(fs::equivalent(OwnProgram(), "/proc/self/exe"));
}

TEST_F(ProcessTest, WhatCannotBeStartedIsSaid) {
  pid_t pid = 0;
  EXPECT_EQ(StartDetached({"/missing/program"}, environ, log_, &pid), ENOENT);
  EXPECT_EQ(StartDetached({"/bin/true"}, environ, folder_ + "/missing/log", &pid), ENOENT);
}

}  // namespace
}  // namespace gpuloom
