#include "agent/executor/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "agent/executor/sanitized.h"

namespace gpuloom::executor {
namespace {

// Runs `body` in a process of its own and gives back what it returns.
template <typename F>
int InChild(F body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

[[maybe_unused]] bool Refused(long result) { return result == -1 && errno == EPERM; }

TEST(Sandbox, NoCapabilitiesAreLeftAndNoneCanBeGained) {
  EXPECT_EQ(InChild([] {
              std::string error;
              if (!DropPrivileges(&error)) return 1;
              __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
              __user_cap_data_struct sets[2] = {};
              if (syscall(SYS_capget, &header, sets) != 0) return 2;
              for (const auto& set : sets) {
                if ((set.effective | set.permitted | set.inheritable) != 0) return 3;
              }
              return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? 0 : 4;
            }),
            0);
}

// The filter is not set in sanitizer builds (sandbox.h), so there is nothing to test.
#if !GPULOOM_SANITIZED
TEST(Sandbox, WhatAnIntruderWantsIsRefused) {
  EXPECT_EQ(InChild([] {
              std::string error;
              if (!DropPrivileges(&error) || !RefuseSystemCalls(&error)) return 1;
              char name[] = "/bin/true";
              char* arguments[] = {name, nullptr};
              if (!Refused(execv(name, arguments))) return 2;
              if (!Refused(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr))) return 3;
              if (!Refused(socket(AF_INET, SOCK_STREAM, 0))) return 4;
              if (!Refused(socket(AF_NETLINK, SOCK_RAW, 0))) return 5;
              if (!Refused(unshare(CLONE_NEWUSER))) return 6;
              if (!Refused(syscall(SYS_bpf, 0, nullptr, 0))) return 7;
              if (!Refused(syscall(SYS_process_vm_readv, getpid(), nullptr, 0, nullptr, 0, 0))) {
                return 8;
              }
              return 0;
            }),
            0);
}

TEST(Sandbox, WhatTheDriverNeedsWorks) {
  EXPECT_EQ(InChild([] {
              std::string error;
              if (!DropPrivileges(&error) || !RefuseSystemCalls(&error)) return 1;
              if (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                  MAP_FAILED) {
                return 2;
              }
              if (syscall(SYS_memfd_create, "memory", 1) < 0) return 3;
              if (open("/dev/null", O_RDWR) < 0) return 4;
              int pair[2];
              if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return 5;
              std::atomic<bool> ran{false};
              std::thread([&] { ran = true; }).join();
              return ran ? 0 : 6;
            }),
            0);
}

TEST(Sandbox, ThreadsThatRunAlreadyAreUnderTheFilterToo) {
  EXPECT_EQ(InChild([] {
              std::atomic<int> step{0};
              int result = 1;
              std::thread other([&] {
                while (step == 0) std::this_thread::yield();
                result = Refused(socket(AF_INET, SOCK_STREAM, 0)) ? 0 : 2;
              });
              std::string error;
              const bool ok = DropPrivileges(&error) && RefuseSystemCalls(&error);
              step = 1;
              other.join();
              return ok ? result : 3;
            }),
            0);
}

#endif

}  // namespace
}  // namespace gpuloom::executor
