// SPDX-License-Identifier: Apache-2.0
#include "agent/node/program_output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "agent/node/process.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {
namespace {

using Clock = std::chrono::steady_clock;

// Until the program closes it, or for as long as we wait.
std::string ReadAll(int fd, std::chrono::seconds patience, size_t most_bytes) {
  std::string said;
  const auto deadline = Clock::now() + patience;
  while (said.size() < most_bytes) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd polled{fd, POLLIN, 0};
    if (left.count() <= 0) break;
    const int ready = poll(&polled, 1, static_cast<int>(left.count()));
    // A signal, as for another log level, says nothing about the program.
    if (ready < 0 && errno == EINTR) continue;
    if (ready != 1) break;
    char text[512];
    const ssize_t size = read(fd, text, sizeof(text));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    said.append(text, static_cast<size_t>(size));
  }
  return said;
}

// Once it has closed its outputs it has ended, or is about to.
std::optional<int> WaitShortly(pid_t pid) {
  int status = 0;
  for (int tries = 0; tries < 100; ++tries) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) return status;
    // The agent reaps every child that has ended, this one, too.
    if (ended < 0 && errno == ECHILD) return 0;
    usleep(10'000);
  }
  return std::nullopt;
}

}  // namespace

ProgramOutput RunForOutput(const std::vector<std::string>& arguments, std::chrono::seconds patience,
                           size_t most_bytes) {
  ProgramOutput output;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    output.trouble = arguments[0] + ": " + strerror(errno);
    return output;
  }
  const channel::UniqueFd reader(ends[0]);
  channel::UniqueFd writer(ends[1]);
  pid_t pid = 0;
  const int error = StartProcess({arguments, environ, writer.get(), {}}, &pid);
  writer.Reset();
  if (error != 0) {
    output.trouble = arguments[0] + ": " + strerror(error);
    return output;
  }
  output.said = ReadAll(reader.get(), patience, most_bytes);
  output.wait_status = WaitShortly(pid);
  if (output.wait_status) return output;
  kill(pid, SIGKILL);
  // One that sleeps in the kernel, on a network's file, does not even die; our own end takes care of it.
  (void)WaitShortly(pid);
  return output;
}

}  // namespace gpuloom
