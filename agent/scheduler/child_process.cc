// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/child_process.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string_view>

#include "agent/node/process.h"

namespace gpuloom::scheduler {

std::vector<std::string> CleanEnvironment(char* const* environment) {
  // What programs, the dynamic linker and the sanitizers need.
  constexpr std::string_view kNames[] = {
      "PATH", "LD_LIBRARY_PATH", "HOME",          "TMPDIR",      "LANG",
      "TZ",   "ASAN_OPTIONS",    "UBSAN_OPTIONS", "TSAN_OPTIONS"};
  constexpr std::string_view kPrefixes[] = {"CUDA_", "NVIDIA_", "GPULOOM_SOFTGPU_",
                                            "GPULOOM_EXECUTOR_"};
  std::vector<std::string> kept;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const std::string_view name = variable.substr(0, variable.find('='));
    bool keep = false;
    for (const std::string_view wanted : kNames) keep = keep || name == wanted;
    for (const std::string_view prefix : kPrefixes) keep = keep || name.starts_with(prefix);
    if (keep) kept.emplace_back(variable);
  }
  return kept;
}

bool ChildProcess::Start(const std::vector<std::string>& arguments, int output,
                         const std::vector<int>& descriptors, std::string* error) {
  const std::vector<std::string> environment = CleanEnvironment(environ);
  // Points into `environment`, which outlives the call.
  std::vector<char*> envp;
  for (const std::string& variable : environment) {
    envp.push_back(const_cast<char*>(variable.c_str()));
  }
  envp.push_back(nullptr);
  const int result = StartProcess({.arguments = arguments,
                                   .environment = envp.data(),
                                   .output = output,
                                   .descriptors = descriptors},
                                  &pid_);
  if (result != 0) {
    pid_ = 0;
    *error = "cannot start " + arguments[0] + ": " + strerror(result);
    return false;
  }
  killed_ = false;
  return true;
}

bool ChildProcess::Kill(std::string* error) {
  if (pid_ <= 0) return true;
  // Signals the group, so that whatever the process has started ends with it.
  // ESRCH: it has ended just now.
  if (kill(-pid_, SIGKILL) != 0 && errno != ESRCH) {
    *error = "cannot end process " + std::to_string(pid_) + ": " + strerror(errno) +
             ": the scheduler needs CAP_KILL to end another user's";
    return false;
  }
  killed_ = true;
  return true;
}

void ChildProcess::Abort() const {
  if (pid_ > 0) kill(pid_, SIGABRT);
}

void ChildProcess::Signal(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

bool ChildProcess::Reap(std::string* how) {
  if (pid_ <= 0) return false;
  siginfo_t info{};
  // WNOWAIT: the process stays a zombie, so that its number, which is also the group's, cannot be
  // another's when the group is killed.
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return false;
  }
  kill(-pid_, SIGKILL);  // the rest of its process group, before the number can be reused
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  *how = ExitText(status);
  // Our own SIGKILL is told apart: one from elsewhere mostly comes from the kernel, for lack of
  // memory.
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    *how += killed_ ? ", ours" : ", not ours: is the machine out of memory?";
  }
  return true;
}

}  // namespace gpuloom::scheduler
