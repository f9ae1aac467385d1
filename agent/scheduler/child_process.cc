#include "agent/scheduler/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string_view>

#include "proto/control/messages.h"

namespace gpuloom::scheduler {

std::vector<std::string> CleanEnvironment(char* const* environment) {
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
  std::vector<char*> argv, envp;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  for (const std::string& variable : environment)
    envp.push_back(const_cast<char*>(variable.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  // Out of the way first: one may have a number that another is to get.
  const int count = static_cast<int>(descriptors.size());
  std::vector<channel::UniqueFd> apart;
  for (const int fd : descriptors) {
    apart.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, control::kExecutorControlFd + count));
    if (!apart.back().valid()) {
      *error = "cannot start " + arguments[0] + ": no descriptor left: " + strerror(errno);
      return false;
    }
  }

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  // Also clears close-on-exec when it is that number already.
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  for (int i = 0; i < count; ++i) {
    posix_spawn_file_actions_adddup2(&actions, apart[static_cast<size_t>(i)].get(),
                                     control::kExecutorControlFd + i);
  }
  posix_spawn_file_actions_addclosefrom_np(&actions, control::kExecutorControlFd + count);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const int result = posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), envp.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (result != 0) {
    pid_ = 0;
    *error = "cannot start " + arguments[0] + ": " + strerror(result);
    return false;
  }
  return true;
}

bool ChildProcess::Kill(std::string* error) {
  if (pid_ <= 0) return true;
  // ESRCH: it has ended just now.
  if (kill(-pid_, SIGKILL) != 0 && errno != ESRCH) {
    *error = "cannot end process " + std::to_string(pid_) + ": " + strerror(errno) +
             ": the scheduler needs CAP_KILL to end another user's";
    return false;
  }
  killed_ = true;
  return true;
}

bool ChildProcess::Reap(std::string* how) {
  if (pid_ <= 0) return false;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return false;
  }
  kill(-pid_, SIGKILL);  // what it left behind in its group, before the number can be given again
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    const char* name = sigabbrev_np(signal);
    *how = "killed by signal " + std::to_string(signal) +
           (name == nullptr ? "" : std::string(" (SIG") + name + ")");
    if (signal == SIGKILL) *how += killed_ ? ", ours" : ", not ours: is the machine out of memory?";
  } else {
    *how = "exited with " + std::to_string(WEXITSTATUS(status));
  }
  return true;
}

}  // namespace gpuloom::scheduler
