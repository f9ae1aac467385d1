// SPDX-License-Identifier: Apache-2.0
// For testing what a process cannot undo.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace gpuloom::executor {

// Runs `body` in a child process and returns its result, or 100 plus the signal.
template <typename F>
int InChild(F body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

}  // namespace gpuloom::executor
