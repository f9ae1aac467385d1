// SPDX-License-Identifier: Apache-2.0
// The command runs in our own process group: the terminal's signals reach it directly, and it may
// read from the terminal. So nothing is set up for it but the signals' mask.
#include "agent/run/command.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/channel/unique_fd.h"

namespace gpuloom::run {
namespace {

constexpr int kForwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// Ours before BlockSignals, which the command is to start with.
sigset_t g_original_mask;

// Those that are passed on, and SIGCHLD, by which the end of the command is noticed.
sigset_t HandledSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int signal : kForwarded) sigaddset(&signals, signal);
  return signals;
}

int Spawn(const std::vector<std::string>& command, pid_t* pid) {
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &g_original_mask);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int result = posix_spawnp(pid, argv[0], nullptr, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  return result;
}

}  // namespace

void BlockSignals() {
  const sigset_t signals = HandledSignals();
  sigprocmask(SIG_BLOCK, &signals, &g_original_mask);
}

int RunCommand(const std::vector<std::string>& command,
               const std::vector<std::pair<std::string, std::string>>& environment, int watched_fd,
               const std::function<void()>& on_watched) {
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  const sigset_t signals = HandledSignals();
  const channel::UniqueFd signal_fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  pid_t pid = 0;
  const int result = Spawn(command, &pid);
  if (result != 0) {
    fprintf(stderr, "gpuloom: cannot run %s: %s\n", command[0].c_str(), strerror(result));
    // As shells and env(1) have it.
    return result == ENOENT ? 127 : 126;
  }
  pollfd polled[2] = {{signal_fd.get(), POLLIN, 0}, {watched_fd, POLLIN, 0}};
  for (;;) {
    if (poll(polled, 2, -1) < 0 && errno != EINTR) return 126;
    // Once: a hang-up would be readable for ever.
    if (polled[1].fd >= 0 && polled[1].revents != 0) {
      polled[1].fd = -1;
      on_watched();
    }
    signalfd_siginfo info;
    while (read(signal_fd.get(), &info, sizeof(info)) == sizeof(info)) {
      // The terminal sends Ctrl-C to the command itself: only what was sent to us is passed on.
      const bool from_terminal = info.ssi_code == SI_KERNEL;
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal != SIGCHLD && !from_terminal) kill(pid, signal);
    }
    int status = 0;
    // Asked after every wake-up: signals of one kind that wait are one.
    if (waitpid(pid, &status, WNOHANG) == pid) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
  }
}

}  // namespace gpuloom::run
