// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/system_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "agent/executor/process/sanitized.h"
#include "agent/executor/testing/child.h"

namespace gpuloom::executor {
namespace {

bool Restrict(channel::UniqueFd* listener = nullptr) {
  std::string error;
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && RestrictSystemCalls(listener, &error);
}

bool Refused(long result, int error = EPERM) { return result == -1 && errno == error; }

class SystemCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers' run-time libraries trace themselves: no filter";
  }
};

TEST_F(SystemCalls, WhatAnIntruderWantsIsRefused) {
  EXPECT_EQ(InChild([] {
              int pair[2];
              if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || !Restrict()) return 1;
              char name[] = "/bin/true";
              char* arguments[] = {name, nullptr};
              if (!Refused(execv(name, arguments))) return 2;
              for (const int family : {AF_INET, AF_NETLINK, AF_VSOCK}) {
                if (!Refused(socket(family, SOCK_SEQPACKET, 0))) return 3;
              }
              for (const int type : {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW}) {
                if (!Refused(socket(AF_UNIX, type | SOCK_CLOEXEC, 0))) return 5;
              }
              if (!Refused(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair))) return 4;
              for (const int number :
                   {SYS_connect, SYS_accept, SYS_accept4, SYS_ptrace, SYS_process_vm_readv,
                    SYS_unshare, SYS_setns, SYS_bpf, SYS_mount, SYS_seccomp, SYS_setresuid,
                    SYS_capset, SYS_rt_sigqueueinfo, SYS_tkill, SYS_shmget, SYS_keyctl}) {
                if (!Refused(syscall(number, 0, 0, 0, 0, 0, 0))) return number;
              }
              constexpr int kIoUringSetup = 425, kPidfdOpen = 434, kPidfdGetfd = 438;
              for (const int number : {kIoUringSetup, kPidfdOpen, kPidfdGetfd}) {
                if (!Refused(syscall(number, 0, 0, 0, 0, 0, 0))) return number;
              }
              return 0;
            }),
            0);
}

TEST_F(SystemCalls, WhatTheCLibraryHasOlderFormsOfIsNotThere) {
  EXPECT_EQ(InChild([] {
              constexpr int kClone3 = 435, kOpenat2 = 437, kNotYet = 600;
              if (!Restrict()) return 1;
              for (const int number : {kClone3, kOpenat2, kNotYet}) {
                if (!Refused(syscall(number, 0, 0, 0, 0, 0, 0), ENOSYS)) return 2;
              }
              return 0;
            }),
            0);
}

TEST_F(SystemCalls, OtherProcessesAreNotReached) {
  EXPECT_EQ(
      InChild([] {
        int pair[2];
        const pid_t parent = getppid();
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || !Restrict()) return 1;
        if (!Refused(kill(parent, 0)) || !Refused(kill(-1, 0)) || !Refused(kill(0, 0))) return 2;
        if (!Refused(syscall(SYS_tgkill, parent, parent, 0))) return 3;
        rlimit limit;
        if (!Refused(prlimit(parent, RLIMIT_NOFILE, nullptr, &limit))) return 4;
        if (!Refused(fcntl(pair[0], F_SETOWN, parent))) return 5;
        f_owner_ex owner = {F_OWNER_PID, parent};
        if (!Refused(fcntl(pair[0], F_SETOWN_EX, &owner))) return 6;
        if (!Refused(fcntl(pair[0], F_SETSIG, SIGKILL))) return 7;
        if (!Refused(ioctl(pair[0], FIOSETOWN, &parent))) return 8;
        if (!Refused(ioctl(0, TIOCSTI, "x"))) return 9;
        // Itself it reaches.
        if (kill(getpid(), 0) != 0 || prlimit(getpid(), RLIMIT_NOFILE, nullptr, &limit) != 0) {
          return 10;
        }
        return pthread_kill(pthread_self(), 0) == 0 ? 0 : 11;
      }),
      0);
}

TEST_F(SystemCalls, ThreadsMayBeMadeAndProcessesAndNamespacesNot) {
  EXPECT_EQ(
      InChild([] {
        if (!Restrict()) return 1;
        std::atomic<bool> ran{false};
        std::thread([&] { ran = true; }).join();
        if (!ran) return 2;
        if (!Refused(fork())) return 3;
        for (const unsigned long flags :
             {CLONE_NEWUSER | SIGCHLD, CLONE_THREAD | CLONE_SIGHAND | CLONE_VM | CLONE_NEWNET}) {
          if (!Refused(syscall(SYS_clone, flags, nullptr, nullptr, nullptr, 0))) return 4;
        }
        return 0;
      }),
      0);
}

TEST_F(SystemCalls, WhatTheDriverNeedsWorks) {
  EXPECT_EQ(InChild([] {
              if (!Restrict()) return 1;
              if (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                  MAP_FAILED) {
                return 2;
              }
              if (memfd_create("memory", MFD_CLOEXEC) < 0) return 3;
              if (open("/dev/null", O_RDWR) < 0) return 4;
              int pair[2];
              if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return 5;
              if (fcntl(pair[0], F_SETFL, O_NONBLOCK) != 0) return 6;
              if (epoll_create1(0) < 0 || eventfd(0, 0) < 0) return 7;
              if (prctl(PR_SET_NAME, "driver", 0, 0, 0) != 0) return 8;
              return sched_yield() == 0 ? 0 : 9;
            }),
            0);
}

// cuInit makes one and listens, which nobody can join.
TEST_F(SystemCalls, ASocketToListenOnGoesNowhere) {
  EXPECT_EQ(InChild([] {
              if (!Restrict()) return 1;
              const int listens = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
              const sockaddr_un any{AF_UNIX, ""};
              const auto* address = reinterpret_cast<const sockaddr*>(&any);
              if (listens < 0 || bind(listens, address, sizeof(any.sun_family)) != 0) return 2;
              if (listen(listens, 1) != 0) return 3;
              if (!Refused(accept4(listens, nullptr, nullptr, 0))) return 4;
              const int sends = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
              sockaddr_un name{};
              socklen_t bytes = sizeof(name);
              if (getsockname(listens, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return 5;
              const auto* to = reinterpret_cast<const sockaddr*>(&name);
              if (!Refused(connect(sends, to, bytes))) return 6;
              return Refused(sendto(sends, "x", 1, MSG_NOSIGNAL, to, bytes), ENOTCONN) ? 0 : 7;
            }),
            0);
}

TEST_F(SystemCalls, ThreadsThatRunAlreadyAreUnderTheFilterToo) {
  EXPECT_EQ(InChild([] {
              std::atomic<int> step{0};
              int result = 1;
              std::thread other([&] {
                while (step == 0) std::this_thread::yield();
                result = Refused(socket(AF_INET, SOCK_STREAM, 0)) ? 0 : 2;
              });
              const bool ok = Restrict();
              step = 1;
              other.join();
              return ok ? result : 3;
            }),
            0);
}

// Another architecture's numbers would slip through.
#if defined(__x86_64__)
TEST_F(SystemCalls, CallsOfAnotherArchitectureEndTheProcess) {
  const auto getpid_as_32_bit_programs_do = [] {
    long result = 20;
    asm volatile("int $0x80" : "+a"(result) : : "memory");
    return 2;
  };
  // Kernels without IA32 emulation answer the instruction itself with SIGSEGV, filter or not.
  const bool emulated = InChild(getpid_as_32_bit_programs_do) == 2;
  EXPECT_EQ(InChild([&] { return Restrict() ? getpid_as_32_bit_programs_do() : 1; }),
            100 + (emulated ? SIGSYS : SIGSEGV));
}

TEST_F(SystemCalls, NumbersOfX32AreNotThere) {
  EXPECT_EQ(InChild([] {
              constexpr long kX32 = 0x40000000;
              return Restrict() && Refused(syscall(kX32 | SYS_getpid), ENOSYS) ? 0 : 1;
            }),
            0);
}
#endif

TEST_F(SystemCalls, WhoHoldsTheListenerIsAskedAndAnswers) {
  unsigned action = SECCOMP_RET_USER_NOTIF;
  if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) != 0) {
    GTEST_SKIP() << "this kernel does not ask";
  }
  EXPECT_EQ(InChild([] {
              channel::UniqueFd listener;
              if (!Restrict(&listener) || !listener.valid()) return 1;
              long result = 0;
              int error = 0;
              std::thread asks([&] {
                result = socket(AF_INET, SOCK_STREAM, 0);
                error = errno;
              });
              seccomp_notif request{};
              seccomp_notif_resp answer{};
              if (ioctl(listener.get(), SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) return 2;
              if (request.data.nr != SYS_socket) return 3;
              answer.id = request.id;
              answer.error = -EACCES;
              if (ioctl(listener.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer) != 0) return 4;
              asks.join();
              if (result != -1 || error != EACCES) return 5;
              // Nobody answers any more: refused by the kernel itself, and nobody waits.
              listener.Reset();
              return Refused(socket(AF_INET, SOCK_STREAM, 0), ENOSYS) ? 0 : 6;
            }),
            0);
}

}  // namespace
}  // namespace gpuloom::executor
