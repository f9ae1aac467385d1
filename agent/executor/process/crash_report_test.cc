// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/crash_report.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "agent/executor/process/sanitized.h"

namespace gpuloom::executor {
namespace {

constexpr char kSkipped[] = "sanitizers handle the signals of a crash themselves";

// What a process that crashes in `crash` leaves in its log, and how it ended.
std::string Report(void (*crash)(), const std::string& errors, int* status) {
  int log[2];
  EXPECT_EQ(pipe(log), 0);
  const int errors_fd = memfd_create("errors", 0);
  EXPECT_EQ(write(errors_fd, errors.data(), errors.size()), static_cast<ssize_t>(errors.size()));
  const pid_t child = fork();
  if (child == 0) {
    ReportCrashes(log[1], errors_fd);
    crash();
    _exit(0);
  }
  close(log[1]);
  close(errors_fd);
  std::string text;
  char piece[512];
  for (ssize_t bytes; (bytes = read(log[0], piece, sizeof(piece))) > 0;) {
    text.append(piece, static_cast<size_t>(bytes));
  }
  close(log[0]);
  EXPECT_EQ(waitpid(child, status, 0), child);
  return text;
}

TEST(CrashReport, NamesTheSignalTheAddressAndTheCalls) {
  if (kSanitized) GTEST_SKIP() << kSkipped;
  int status = 0;
  const std::string text =
      Report([] { *reinterpret_cast<volatile int*>(uintptr_t{0x1230}) = 1; }, "", &status);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_NE(text.find("Z error gpuloom-executor: crashed: signal 11 (SIGSEGV), address 0x1230"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("gpuloom_executor_unit_test"), std::string::npos) << text;
}

TEST(CrashReport, PassesOnWhyALibraryGaveUp) {
  if (kSanitized) GTEST_SKIP() << kSkipped;
  int status = 0;
  const std::string text = Report([] { abort(); }, "munmap_chunk(): invalid pointer\n", &status);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGABRT);
  EXPECT_EQ(text.find("munmap_chunk(): invalid pointer\n"), 0u) << text;
  EXPECT_NE(text.find("(SIGABRT)"), std::string::npos) << text;
}

// Calls itself deeper than any stack is.
int Overflow(volatile int* left) {
  volatile char room[4096];
  room[0] = static_cast<char>(*left);
  *left = *left - 1;
  return *left == 0 ? 0 : Overflow(left) + room[0];
}

TEST(CrashReport, TellsOfAStackThatOverflows) {
  if (kSanitized) GTEST_SKIP() << kSkipped;
  int status = 0;
  const std::string text = Report(
      [] {
        std::thread([] {
          ReserveCrashStack();
          volatile int left = 1 << 30;
          Overflow(&left);
        }).join();
      },
      "", &status);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  EXPECT_NE(text.find("crashed: signal 11 (SIGSEGV)"), std::string::npos) << text;
}

size_t CountOf(const std::string& text, const std::string& line) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(line, at)) != text.npos; ++at) ++count;
  return count;
}

TEST(CrashReport, EveryThreadSaysWhereItIsWhenItIsEndedFromOutside) {
  if (kSanitized) GTEST_SKIP() << kSkipped;
  int status = 0;
  const auto end_from_outside = [&status] {
    return Report(
        [] {
          std::atomic<int> ready{0};
          const auto wait = [&] {
            ReserveCrashStack();
            ++ready;
            for (;;) pause();
          };
          std::thread first(wait), second(wait);
          while (ready != 2) usleep(1000);
          // Behind the others: a thread has 20 ms to answer, in which a busy machine lets it run rather than this one.
          (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19);
          // Another process, as the scheduler is.
          const pid_t self = getpid();
          if (fork() == 0) _exit(kill(self, SIGABRT));
          for (;;) pause();
        },
        "", &status);
  };
  // It may not all the same.
  std::string text;
  size_t others = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (others != 2 && std::chrono::steady_clock::now() < until) {
    text = end_from_outside();
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGABRT);
    EXPECT_NE(text.find("ended from outside: signal 6 (SIGABRT)"), std::string::npos) << text;
    others = CountOf(text, "error gpuloom-executor: meanwhile, thread");
    ASSERT_LE(others, 2u) << text;
  }
  EXPECT_EQ(others, 2u) << text;
}

}  // namespace
}  // namespace gpuloom::executor
