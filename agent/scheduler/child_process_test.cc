// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/sync/testing/wait_for.h"

namespace gpuloom::scheduler {
namespace {

using ::testing::HasSubstr;

std::string HowItEnds(ChildProcess* process) {
  std::string how;
  (void)WaitFor([&] { return process->Reap(&how); });
  return how;
}

TEST(ChildProcess, IsEndedByUs) {
  ChildProcess process;
  std::string error;
  ASSERT_TRUE(process.Start({"/bin/sleep", "600"}, STDERR_FILENO, {}, &error)) << error;
  EXPECT_TRUE(process.Kill(&error)) << error;
  EXPECT_EQ(HowItEnds(&process), "killed by signal 9 (SIGKILL), ours");
  EXPECT_TRUE(process.Kill(&error)) << "there is nobody left";
}

// A child that has become another user is out of reach of who lacks CAP_KILL.
TEST(ChildProcess, OneThatMayNotBeEndedIsSaid) {
  if (getuid() != 0) GTEST_SKIP() << "only root has children of other users";
  const pid_t parent = fork();
  if (parent == 0) {
    ChildProcess process;
    std::string error;
    if (!process.Start({"/usr/bin/setpriv", "--reuid", "65534", "/bin/sleep", "600"}, STDERR_FILENO,
                       {}, &error)) {
      _exit(1);
    }
    // Until it has become that user.
    const std::string status = "/proc/" + std::to_string(process.pid()) + "/comm";
    for (char name[16] = {}; strncmp(name, "sleep", 5) != 0;) {
      const int fd = open(status.c_str(), O_RDONLY | O_CLOEXEC);
      if (fd < 0 || read(fd, name, sizeof(name)) < 0) _exit(2);
      close(fd);
    }
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2] = {};
    if (syscall(SYS_capget, &header, sets) != 0) _exit(3);
    const __user_cap_data_struct all = sets[0];
    sets[0].effective &= ~(1u << CAP_KILL);
    if (syscall(SYS_capset, &header, sets) != 0) _exit(4);
    if (process.Kill(&error)) _exit(5);
    if (error.find("CAP_KILL") == std::string::npos) _exit(6);
    sets[0] = all;
    if (syscall(SYS_capset, &header, sets) != 0 || !process.Kill(&error)) _exit(7);
    _exit(HowItEnds(&process) == "killed by signal 9 (SIGKILL), ours" ? 0 : 8);
  }
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ChildProcess, AProgramThatIsNotThereIsSaid) {
  ChildProcess process;
  std::string error;
  EXPECT_FALSE(process.Start({"/missing/program"}, STDERR_FILENO, {}, &error));
  EXPECT_THAT(error, HasSubstr("cannot start /missing/program: No such file"));
}

}  // namespace
}  // namespace gpuloom::scheduler
