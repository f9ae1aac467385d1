// SPDX-License-Identifier: Apache-2.0
#include "agent/run/executor_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "agent/node/layout.h"
#include "agent/node/one_line.h"
#include "agent/node/process.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom::run {
namespace {

using Clock = std::chrono::steady_clock;

// It looks for CUPTI before it answers, which takes a while from a cold disk.
constexpr std::chrono::seconds kPatience{10};
constexpr size_t kLongestSaid = 4096;
constexpr size_t kLongestLine = 500;

// Reads until the program closes the pipe, or for at most kPatience.
std::string ReadAll(int fd) {
  std::string said;
  const auto deadline = Clock::now() + kPatience;
  while (said.size() < kLongestSaid) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd polled{fd, POLLIN, 0};
    if (left.count() <= 0 || poll(&polled, 1, static_cast<int>(left.count())) != 1) break;
    char text[512];
    const ssize_t size = read(fd, text, sizeof(text));
    // The program has closed it, normally by ending.
    if (size <= 0) break;
    said.append(text, static_cast<size_t>(size));
  }
  return said;
}

// The rest of the first line that starts with `begin`; empty: there is none.
std::string LineAfter(const std::string& said, const std::string& begin) {
  for (size_t at = 0; at < said.size();) {
    const size_t end = std::min(said.find('\n', at), said.size());
    const std::string line = said.substr(at, end - at);
    if (line.starts_with(begin)) return OneLine(line.substr(begin.size()), kLongestLine);
    at = end + 1;
  }
  return {};
}

}  // namespace

ExecutorProgram ReadExecutorVersion(const std::string& said) {
  ExecutorProgram its;
  its.version = LineAfter(said, "gpuloom-executor ");
  // The line goes on with the versions of the protocols.
  its.version = its.version.substr(0, its.version.find(", wire "));
  its.cupti = LineAfter(said, "CUPTI: ");
  its.why_no_cupti = LineAfter(said, "no CUPTI: ");
  if (its.version.empty()) its.trouble = "it does not say its version";
  return its;
}

ExecutorProgram AskExecutorProgram(const std::string& program) {
  const std::string path = LayoutOf(program).helpers + "/gpuloom-executor";
  ExecutorProgram its;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    its.trouble = path + ": " + strerror(errno);
    return its;
  }
  const channel::UniqueFd reader(ends[0]);
  channel::UniqueFd writer(ends[1]);
  pid_t pid = 0;
  const int error = StartProcess({{path, "--version"}, environ, writer.get(), {}}, &pid);
  // Otherwise our own end would keep the pipe open, and ReadAll waiting.
  writer.Reset();
  if (error != 0) {
    its.trouble = path + ": " + strerror(error);
    return its;
  }
  const std::string said = ReadAll(reader.get());
  kill(pid, SIGKILL);  // one that hangs; whoever has said all has ended, or is about to
  // One that sleeps in the kernel, on a network's file, does not even die; our own end takes care of it.
  for (int tries = 0; tries < 100 && waitpid(pid, nullptr, WNOHANG) == 0; ++tries) usleep(10'000);
  its = ReadExecutorVersion(said);
  if (!its.trouble.empty()) its.trouble = path + ": " + its.trouble;
  return its;
}

}  // namespace gpuloom::run
