// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tests/bench/lines.h"
#include "tests/bench/report.h"

namespace gpuloom::bench {
namespace {

// Starts this program again as `--first-kernel` or `--fresh-launches` and reads the number that it prints. 0 with the
// error kept.
uint64_t RunFresh(Gpu& gpu, const Plan& plan, const char* mode) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    gpu.Wrong(std::string("pipe: ") + std::strerror(errno));
    return 0;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const char* arguments[] = {plan.self.c_str(), "--library", plan.library.c_str(), mode, nullptr};
  pid_t child = 0;
  const int spawned = posix_spawn(&child, plan.self.c_str(), &actions, nullptr,
                                  const_cast<char**>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string said;
  int status = -1;
  if (spawned == 0) {
    char buffer[256];
    ssize_t count = 0;
    while ((count = read(ends[0], buffer, sizeof(buffer))) > 0) {
      said.append(buffer, static_cast<size_t>(count));
    }
    waitpid(child, &status, 0);
  }
  close(ends[0]);
  if (spawned != 0 || status != 0) {
    gpu.Wrong(plan.self + " " + mode +
              " failed: " + (spawned != 0 ? std::string(std::strerror(spawned)) : said));
    return 0;
  }
  return std::strtoull(said.c_str(), nullptr, 10);
}

}  // namespace

bool MeasureStartUp(Gpu& gpu, const Plan& plan) {
  bool good = RunLine(gpu, plan, "start_up", "ms", [&](std::vector<double>& samples) {
    const int times = plan.Times(3, 1);
    for (int i = 0; i < times && !gpu.failed(); ++i) {
      const uint64_t start_ns = NowNs();
      // When its first kernel was done, on NowNs's clock, which is the machine's.
      const uint64_t done_ns = RunFresh(gpu, plan, "--first-kernel");
      if (done_ns > start_ns) samples.push_back(static_cast<double>(done_ns - start_ns) / 1e6);
    }
  });
  good &= RunLine(gpu, plan, "launch_fresh_50", "us", [&](std::vector<double>& samples) {
    const int times = plan.Times(5, 1);
    for (int i = 0; i < times && !gpu.failed(); ++i) {
      const uint64_t took_ns = RunFresh(gpu, plan, "--fresh-launches");
      if (took_ns != 0) samples.push_back(static_cast<double>(took_ns) / 1e3);
    }
  });
  return good;
}

}  // namespace gpuloom::bench
