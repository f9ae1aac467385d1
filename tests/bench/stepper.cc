// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/stepper.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace gpuloom::bench {
namespace {

constexpr uint8_t kMark = 0xcc;
constexpr uint64_t kSystemCall = 0x050f;  // the instruction's two bytes, as read

class Tracer {
 public:
  Tracer(pid_t child, const Shared& shared) : child_(child), shared_(shared) {}

  bool Run(std::vector<Cost>* costs) {
    if (!Wait() || !Continue()) return false;  // it stops itself before it begins
    while (!ended_) {
      Cost cost;
      // The mark has been executed: the child stands behind it.
      if (!Count(&cost)) return false;
      costs->push_back(cost);
      if (!Continue()) return false;
    }
    return true;
  }
  const std::string& error() const { return error_; }

 private:
  // Until the child has executed a mark, or has ended.
  bool Continue() {
    for (int signal = 0;;) {
      if (ptrace(PTRACE_CONT, child_, nullptr, signal) != 0) return Fail("going on");
      if (!Wait()) return false;
      if (ended_ || WSTOPSIG(status_) == SIGTRAP) return true;
      signal = WSTOPSIG(status_);
    }
  }

  // Steps until the next mark, and over it.
  bool Count(Cost* cost) {
    for (;;) {
      user_regs_struct registers;
      if (ptrace(PTRACE_GETREGS, child_, nullptr, &registers) != 0) return Fail("looking at it");
      errno = 0;
      const auto code =
          static_cast<uint64_t>(ptrace(PTRACE_PEEKTEXT, child_, registers.rip, nullptr));
      if (errno != 0) return Fail("reading its code");
      if (static_cast<uint8_t>(code) == kMark) {
        registers.rip += 1;
        if (ptrace(PTRACE_SETREGS, child_, nullptr, &registers) != 0) return Fail("passing a mark");
        return true;
      }
      ++cost->instructions;
      if ((code & 0xffff) == kSystemCall) ++cost->system_calls;
      const auto& allocators = shared_.allocators;
      if (std::find(allocators.begin(), allocators.end(), registers.rip) != allocators.end()) {
        ++cost->allocations;
      }
      if (ptrace(PTRACE_SINGLESTEP, child_, nullptr, 0) != 0) return Fail("stepping");
      if (!Wait()) return false;
      if (ended_ || WSTOPSIG(status_) != SIGTRAP) {
        errno = 0;
        return Fail("stepping: it ended, or got a signal, between two marks");
      }
    }
  }

  bool Wait() {
    while (waitpid(child_, &status_, 0) != child_) {
      if (errno != EINTR) return Fail("waiting for it");
    }
    if (WIFSTOPPED(status_)) return true;
    ended_ = true;
    if (WIFEXITED(status_) && WEXITSTATUS(status_) == 0) return true;
    errno = 0;
    return Fail(WIFEXITED(status_) ? "it exited with a failure" : "it was killed by a signal");
  }

  bool Fail(const char* what) {
    error_ = std::string("tracing a child: ") + what;
    if (errno != 0) error_ += std::string(": ") + strerror(errno);
    return false;
  }

  const pid_t child_;
  const Shared& shared_;
  int status_ = 0;
  bool ended_ = false;
  std::string error_;
};

}  // namespace

bool StepChild(const std::function<void(Shared&)>& child, std::vector<Cost>* costs,
               std::string* error) {
  void* place =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) {
    *error = std::string("mapping shared memory: ") + strerror(errno);
    return false;
  }
  auto* shared = new (place) Shared;
  const pid_t pid = fork();
  if (pid == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    raise(SIGSTOP);
    child(*shared);
    _exit(0);
  }
  bool good = false;
  if (pid < 0) {
    *error = std::string("forking: ") + strerror(errno);
  } else {
    Tracer tracer(pid, *shared);
    good = tracer.Run(costs);
    if (!good) {
      *error = tracer.error();
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  munmap(place, sizeof(Shared));
  return good;
}

}  // namespace gpuloom::bench
