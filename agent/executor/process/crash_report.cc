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

#include <array>
#include <atomic>
#include <memory>

#include "agent/executor/process/log.h"

namespace gpuloom::executor {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
// Enough to come out of the driver and of our handlers; more would bury the log's other lines.
constexpr int kMaxFrames = 40;
constexpr int64_t kMaxErrorBytes = 16 << 10;
// backtrace() unwinds there, which takes some 10 KiB.
constexpr size_t kCrashStackBytes = 64 << 10;
// Threads of ours: the workers, and one for each linker of a tenant's.
constexpr size_t kMaxThreads = 256;
// The signal that asks a thread of ours where it is.
constexpr int kWhereSignal = SIGUSR2;
constexpr timespec kWherePollTime = {0, 1'000'000};
constexpr int kWherePolls = 20;

// Read by signal handlers: set before these are installed, and not changed afterwards.
int g_log = -1;
int g_errors = -1;
std::atomic<bool> g_reported{false};
std::array<std::atomic<pid_t>, kMaxThreads> g_threads{};  // 0: a free place
std::atomic<bool> g_calls_written{false};

// The calling thread's stack for handlers, and its place in the list of threads that can be asked
// where they are. With more threads than places the last ones are not asked.
class CrashStack {
 public:
  CrashStack() {
    stack_t stack = {};
    stack.ss_sp = memory_.get();
    stack.ss_size = kCrashStackBytes;
    sigaltstack(&stack, nullptr);
    for (std::atomic<pid_t>& place : g_threads) {
      pid_t free = 0;
      if (!place.compare_exchange_strong(free, gettid())) continue;
      place_ = &place;
      break;
    }
  }
  ~CrashStack() {
    if (place_ != nullptr) place_->store(0);
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
  }
  CrashStack(const CrashStack&) = delete;
  CrashStack& operator=(const CrashStack&) = delete;

 private:
  // Untouched until it is needed.
  const std::unique_ptr<char[]> memory_{new char[kCrashStackBytes]};
  std::atomic<pid_t>* place_ = nullptr;
};

void Write(const char* text, size_t bytes) {
  // If the log cannot be written, that cannot be reported either.
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

// `what`: what happens to the calling thread, which is named behind it, and then its calls.
void WriteCalls(const char* what) {
  char thread[16] = "?";
  pthread_getname_np(pthread_self(), thread, sizeof(thread));
  char text[160];
  snprintf(text, sizeof(text), "%s, thread %s (%d); calls:", what, thread, gettid());
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  char line[kMaxLogLineBytes];
  Write(line, FormatLogLine(now, LogLevel::kError, kExecutorProgram, text, line));
  void* frames[kMaxFrames];
  backtrace_symbols_fd(frames, backtrace(frames, kMaxFrames), g_log);
}

// Runs in the thread that was asked, which continues afterwards.
void OnWhere(int) {
  WriteCalls("meanwhile");
  g_calls_written = true;
}

// One after the other, so that their lines do not mix; a thread that does not answer is left out.
void AskTheOthers() {
  const pid_t self = gettid();
  for (const std::atomic<pid_t>& place : g_threads) {
    const pid_t thread = place;
    if (thread == 0 || thread == self) continue;
    g_calls_written = false;
    if (tgkill(getpid(), thread, kWhereSignal) != 0) continue;
    for (int i = 0; i < kWherePolls && !g_calls_written; ++i) nanosleep(&kWherePollTime, nullptr);
  }
}

// Calls nothing that takes a lock or memory: the crash may lie inside malloc. snprintf of numbers
// and short strings takes neither in glibc.
void OnCrash(int signal, siginfo_t* info, void*) {
  // Several threads may crash at once; the first one's report is the one that is worth reading.
  if (!g_reported.exchange(true)) {
    if (g_errors >= 0) CopyErrors();
    // The scheduler's SIGABRT to an executor that hangs.
    const bool from_outside = info->si_code == SI_USER && info->si_pid != getpid();
    char what[96];
    snprintf(what, sizeof(what), "%s: signal %d (SIG%s), address %p",
             from_outside ? "ended from outside" : "crashed", signal, sigabbrev_np(signal),
             from_outside ? nullptr : info->si_addr);
    WriteCalls(what);
    // It hangs somewhere, and any of its threads may be the reason.
    if (from_outside) AskTheOthers();
  }
  // SA_RESETHAND has put the default back, so this time it ends the process.
  raise(signal);
}

}  // namespace

void ReserveCrashStack() { static thread_local const CrashStack stack; }

void ReportCrashes(int log_fd, int errors_fd) {
  g_log = log_fd;
  g_errors = errors_fd;
  // The first call loads a library and takes memory.
  void* frame = nullptr;
  backtrace(&frame, 1);
  ReserveCrashStack();
  struct sigaction action = {};
  action.sa_sigaction = &OnCrash;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESETHAND | SA_ONSTACK);
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
  struct sigaction where = {};
  where.sa_handler = &OnWhere;
  where.sa_flags = SA_RESTART | SA_ONSTACK;
  sigaction(kWhereSignal, &where, nullptr);
}

}  // namespace gpuloom::executor
