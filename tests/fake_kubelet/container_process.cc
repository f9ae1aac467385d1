// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_kubelet/container_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace gpuloom {
namespace {

using Millis = std::chrono::milliseconds;

constexpr Millis kPoll{5};

// More than one machine runs at once in a demo or a test; a slot is a group's id, or 0.
std::array<std::atomic<pid_t>, 256> running;

void Remember(pid_t pid) {
  for (auto& slot : running) {
    pid_t empty = 0;
    if (slot.compare_exchange_strong(empty, pid)) return;
  }
}

void Forget(pid_t pid) {
  for (auto& slot : running) {
    pid_t mine = pid;
    if (slot.compare_exchange_strong(mine, 0)) return;
  }
}

}  // namespace

std::map<std::string, std::string> ContainerEnvironment(
    const FakeContainer& container, const std::map<std::string, std::string>& extra) {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals != nullptr)
      environment[std::string(*entry, static_cast<size_t>(equals - *entry))] = equals + 1;
  }
  for (const auto& [name, value] : container.envs) {
    const std::string host_path =
        container.HostPath(absl::StrReplaceAll(value, {{"$LIB", "lib64"}}));
    environment[name] = host_path.empty() ? value : host_path;
  }
  if (const std::string directory = container.HostPath("/var/run/gpuloom"); !directory.empty()) {
    environment["GPULOOM_SOCKET_DIR"] = directory;
  }
  for (const auto& [name, value] : extra) environment[name] = value;
  return environment;
}

absl::StatusOr<ProcessResult> RunProcess(const std::vector<std::string>& command,
                                         const std::map<std::string, std::string>& environment,
                                         const std::string& stdout_path,
                                         const std::string& stderr_path, Millis timeout) {
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<std::string> entries;
  for (const auto& [name, value] : environment) entries.push_back(absl::StrCat(name, "=", value));
  std::vector<char*> envp;
  for (std::string& entry : entries) envp.push_back(entry.data());
  envp.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, stdout_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0644);
  posix_spawn_file_actions_addopen(&files, 2, stderr_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                   0644);
  posix_spawn_file_actions_addclosefrom_np(&files, 3);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const auto start = std::chrono::steady_clock::now();
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return absl::NotFoundError(absl::StrCat(command[0], ": ", strerror(error)));
  Remember(pid);

  ProcessResult result;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (!result.timed_out && std::chrono::steady_clock::now() - start >= timeout) {
      result.timed_out = true;
      kill(-pid, SIGKILL);
    }
    std::this_thread::sleep_for(kPoll);
  }
  kill(-pid, SIGKILL);
  Forget(pid);
  result.duration = std::chrono::duration_cast<Millis>(std::chrono::steady_clock::now() - start);
  if (WIFEXITED(status)) {
    result.exit_code = WEXITSTATUS(status);
  } else {
    result.signal = WTERMSIG(status);
  }
  return result;
}

void KillRunningProcesses() {
  for (auto& slot : running) {
    if (const pid_t pid = slot.load(); pid > 0) kill(-pid, SIGKILL);
  }
}

}  // namespace gpuloom
