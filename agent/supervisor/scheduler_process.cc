#include "agent/supervisor/scheduler_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/cat.h"
#include "proto/channel/unique_fd.h"
#include "proto/control/messages.h"

namespace gpuloom {
namespace {

constexpr off_t kMaxLogBytes = 16 << 20;

}  // namespace

absl::StatusOr<pid_t> StartProcess(const std::vector<std::string>& arguments,
                                   const std::string& log_path) {
  struct stat info = {};
  if (stat(log_path.c_str(), &info) == 0 && info.st_size > kMaxLogBytes) {
    (void)rename(log_path.c_str(), (log_path + ".1").c_str());
  }
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log_path.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  // A session of its own: a Ctrl-C for the agent is not one for the tenants.
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return absl::UnavailableError(
        Cat("supervisor: cannot start ", arguments[0], ": ", strerror(error)));
  }
  return pid;
}

std::optional<std::string> ReapProcess(pid_t pid) {
  int status = 0;
  const pid_t ended = waitpid(pid, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return std::nullopt;
  if (ended < 0) return Cat("vanished: ", strerror(errno));
  if (WIFSIGNALED(status)) return Cat("killed by signal ", WTERMSIG(status));
  return Cat("exited with status ", WEXITSTATUS(status));
}

void ReapStrays(const std::set<pid_t>& ours) {
  siginfo_t ended = {};
  // Looked at before it is taken, so that how one of ours ended is still there for ReapProcess.
  while (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid != 0 &&
         !ours.contains(ended.si_pid)) {
    (void)waitpid(ended.si_pid, nullptr, WNOHANG);
    ended.si_pid = 0;
  }
}

bool IsSchedulerLockHeld(const std::string& directory) {
  const channel::UniqueFd fd(
      open((directory + "/" + control::kLockName).c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return false;
  // Taken for an instant only; a scheduler that starts just now tries again or is started again.
  return flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace gpuloom
