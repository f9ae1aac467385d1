// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/refused_calls.h"

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "proto/channel/socket.h"

namespace gpuloom::scheduler {
namespace {

// A process under a filter that asks about getpriority and setpriority; runs `body` there and ends
// with what it returns. The descriptor by which it asks is ours.
template <typename F>
pid_t StartAsking(channel::UniqueFd* descriptor, F body) {
  channel::UniqueFd ours, theirs;
  if (!channel::MakePair(SOCK_SEQPACKET, &ours, &theirs)) return -1;
  const pid_t child = fork();
  if (child == 0) {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setpriority, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {5, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const auto fd = static_cast<int>(
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
    if (fd < 0 || !channel::SendMessage(theirs.get(), "x", 1, &fd, 1)) _exit(100);
    close(fd);
    _exit(body());
  }
  char byte;
  size_t count = 0;
  if (channel::ReceiveMessage(ours.get(), &byte, 1, descriptor, 1, &count) != 1) return -1;
  return child;
}

bool HasAsking() {
  unsigned action = SECCOMP_RET_USER_NOTIF;
  return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

int Serve(EventLoop* loop, pid_t child) {
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) loop->RunOnce(std::chrono::milliseconds(1));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 101;
}

TEST(RefusedCalls, EachIsAnsweredAndEachNumberNamedOnce) {
  if (!HasAsking()) GTEST_SKIP() << "this kernel does not ask";
  channel::UniqueFd descriptor;
  const pid_t child = StartAsking(&descriptor, [] {
    for (int i = 0; i < 5; ++i) {
      errno = 0;
      if (syscall(SYS_getpriority, 0, 0) != -1 || errno != EPERM) return 1;
    }
    return syscall(SYS_setpriority, 0, 0, 1) == -1 && errno == EPERM ? 0 : 2;
  });
  ASSERT_GT(child, 0);
  ASSERT_TRUE(IsRefusedCallsDescriptor(descriptor.get()));
  EventLoop loop;
  RefusedCalls calls(&loop, std::move(descriptor), "executor of domain x");
  ::testing::internal::CaptureStderr();
  const int status = Serve(&loop, child);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, 0);
  const std::string said =
      " warning gpuloom-scheduler: executor of domain x was refused system call ";
  EXPECT_THAT(log, ::testing::HasSubstr(said + std::to_string(SYS_getpriority) + "\n"));
  EXPECT_THAT(log, ::testing::HasSubstr(said + std::to_string(SYS_setpriority) + "\n"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
}

TEST(RefusedCalls, Malicious_WhoAsksWithoutEndIsNoLongerLookedAt) {
  if (!HasAsking()) GTEST_SKIP() << "this kernel does not ask";
  channel::UniqueFd descriptor;
  const pid_t child = StartAsking(&descriptor, [] {
    for (int i = 0; i < RefusedCalls::kMostAnswers; ++i) {
      if (syscall(SYS_getpriority, 0, 0) != -1 || errno != EPERM) return 1;
    }
    // The kernel's own answer when nobody holds the descriptor.
    return syscall(SYS_getpriority, 0, 0) == -1 && errno == ENOSYS ? 0 : 2;
  });
  ASSERT_GT(child, 0);
  EventLoop loop;
  RefusedCalls calls(&loop, std::move(descriptor), "executor of domain x");
  ::testing::internal::CaptureStderr();
  const int status = Serve(&loop, child);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, 0);
  EXPECT_THAT(log, ::testing::HasSubstr("further ones are no longer looked at"));
}

TEST(RefusedCalls, Malicious_ACallerThatDiesMeanwhileBlocksNobody) {
  if (!HasAsking()) GTEST_SKIP() << "this kernel does not ask";
  channel::UniqueFd descriptor;
  const pid_t child =
      StartAsking(&descriptor, [] { return static_cast<int>(syscall(SYS_getpriority, 0, 0)); });
  ASSERT_GT(child, 0);
  EventLoop loop;
  RefusedCalls calls(&loop, std::move(descriptor), "executor of domain x");
  ASSERT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(Serve(&loop, child), 101);
  loop.RunOnce(std::chrono::milliseconds(1));
}

TEST(RefusedCalls, AnotherDescriptorIsNone) {
  channel::UniqueFd a, b;
  ASSERT_TRUE(channel::MakePair(SOCK_STREAM, &a, &b));
  EXPECT_FALSE(IsRefusedCallsDescriptor(a.get()));
  EXPECT_FALSE(IsRefusedCallsDescriptor(-1));
}

}  // namespace
}  // namespace gpuloom::scheduler
