// SPDX-License-Identifier: Apache-2.0
#include "agent/node/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "proto/channel/unique_fd.h"

namespace gpuloom {
namespace {

constexpr int kFirstDescriptor = STDERR_FILENO + 1;

}  // namespace

// The child's whole state is given to posix_spawn, which sets it up between its vfork and the exec: none of our code
// runs in the child.
int StartProcess(const ProcessStart& start, pid_t* pid) {
  std::vector<char*> argv;
  for (const std::string& argument : start.arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);

  // Out of the way first: one may have a number that another is to get.
  const int count = static_cast<int>(start.descriptors.size());
  std::vector<channel::UniqueFd> apart;
  for (const int fd : start.descriptors) {
    apart.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, kFirstDescriptor + count));
    if (!apart.back().valid()) return errno;
  }

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  // Also clears close-on-exec when it is that number already.
  posix_spawn_file_actions_adddup2(&actions, start.output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, start.output, STDERR_FILENO);
  for (int i = 0; i < count; ++i) {
    posix_spawn_file_actions_adddup2(&actions, apart[static_cast<size_t>(i)].get(),
                                     kFirstDescriptor + i);
  }
  // Descriptors that a library has opened without close-on-exec, the driver's above all, stay here
  // (glibc 2.34).
  posix_spawn_file_actions_addclosefrom_np(&actions, kFirstDescriptor + count);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  // 0: a group of its own. A session has one anyway, so only one of the flags is set.
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                         (start.has_own_session ? POSIX_SPAWN_SETSID : POSIX_SPAWN_SETPGROUP)));
  const int error =
      posix_spawn(pid, argv[0], &actions, &attributes, argv.data(), start.environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

int StartDetached(const std::vector<std::string>& arguments, char* const* environment,
                  const std::string& log_path, pid_t* pid) {
  // Appended to, because the program may be started again, and the output of the previous one is worth keeping.
  const channel::UniqueFd log(
      open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) return errno;
  ProcessStart start;
  start.arguments = arguments;
  start.environment = environment;
  start.output = log.get();
  start.has_own_session = true;
  return StartProcess(start, pid);
}

std::string OwnProgram() {
  char self[4096];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof(self));
  return std::string(self, size > 0 ? static_cast<size_t>(size) : 0);
}

std::string ExitText(int wait_status) {
  if (!WIFSIGNALED(wait_status)) {
    return "exited with status " + std::to_string(WEXITSTATUS(wait_status));
  }
  const int signal = WTERMSIG(wait_status);
  const char* name = sigabbrev_np(signal);
  return "killed by signal " + std::to_string(signal) +
         (name == nullptr ? "" : std::string(" (SIG") + name + ")");
}

}  // namespace gpuloom
