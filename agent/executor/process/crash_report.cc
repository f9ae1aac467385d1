// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/crash_report.h"

#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "agent/executor/process/log.h"

namespace gpuloom::executor {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
// Enough to come out of the driver and of our handlers; more would bury the log's other lines.
constexpr int kMaxFrames = 40;
constexpr int64_t kMaxErrorBytes = 16 << 10;

int g_log = -1;
int g_errors = -1;
std::atomic<bool> g_reported{false};

void Write(const char* text, size_t bytes) {
  // There is nobody left to tell that the log cannot be written.
  [[maybe_unused]] const ssize_t written = write(g_log, text, bytes);
}

void CopyErrors() {
  char piece[1024];
  ssize_t bytes;
  for (int64_t at = 0;
       at < kMaxErrorBytes && (bytes = pread(g_errors, piece, sizeof(piece), at)) > 0;
       at += bytes) {
    Write(piece, static_cast<size_t>(bytes));
  }
}

// Calls nothing that takes a lock or memory: the crash may lie inside malloc. snprintf of numbers
// and short strings takes neither in glibc.
void OnCrash(int signal, siginfo_t* info, void*) {
  if (!g_reported.exchange(true)) {
    if (g_errors >= 0) CopyErrors();
    char thread[16] = "?";
    pthread_getname_np(pthread_self(), thread, sizeof(thread));
    char text[160];
    snprintf(text, sizeof(text),
             "crashed: signal %d (SIG%s), address %p, thread %s; calls:", signal,
             sigabbrev_np(signal), info->si_addr, thread);
    timespec now = {};
    clock_gettime(CLOCK_REALTIME, &now);
    char line[kMaxLogLineBytes];
    Write(line, FormatLogLine(now, LogLevel::kError, kExecutorProgram, text, line));
    void* frames[kMaxFrames];
    backtrace_symbols_fd(frames, backtrace(frames, kMaxFrames), g_log);
  }
  // SA_RESETHAND has put the default back, so this time it ends the process.
  raise(signal);
}

}  // namespace

void ReportCrashes(int log_fd, int errors_fd) {
  g_log = log_fd;
  g_errors = errors_fd;
  // The first call loads a library and takes memory.
  void* frame = nullptr;
  backtrace(&frame, 1);
  struct sigaction action = {};
  action.sa_sigaction = &OnCrash;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND);
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

}  // namespace gpuloom::executor
