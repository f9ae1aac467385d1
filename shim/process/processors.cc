// SPDX-License-Identifier: Apache-2.0
#include "shim/process/processors.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace gpuloom {
namespace {

// Returns false if there is no such file.
bool ReadLine(const char* path, char (&line)[64]) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t bytes = read(fd, line, sizeof(line) - 1);
  close(fd);
  if (bytes <= 0) return false;
  line[bytes] = '\0';
  return true;
}

// Both in microseconds. Rounded up, because part of a processor still runs a thread. 0: no limit.
uint32_t Quota(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return 0;
  const long long processors = (quota + period - 1) / period;
  return processors > UINT32_MAX ? 0 : static_cast<uint32_t>(processors);
}

// A container sees its own cgroup as the root. The second form is that of cgroups of version 1.
uint32_t ProcessorsOfCgroup() {
  char line[64], period[64];
  if (ReadLine("/sys/fs/cgroup/cpu.max", line)) return ProcessorsOfCpuMax(line);
  if (ReadLine("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", line) &&
      ReadLine("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period)) {
    return Quota(strtoll(line, nullptr, 10), strtoll(period, nullptr, 10));
  }
  return 0;
}

}  // namespace

uint32_t ProcessorsOfCpuMax(const char* text) {
  char* rest;
  const long long quota = strtoll(text, &rest, 10);
  return rest == text ? 0 : Quota(quota, strtoll(rest, nullptr, 10));
}

uint32_t CountProcessors() {
  cpu_set_t allowed;
  uint32_t count = 0;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) {
    count = static_cast<uint32_t>(CPU_COUNT(&allowed));
  } else {
    // There are more processors than fit into the set.
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (online > 0) count = static_cast<uint32_t>(online);
  }
  const uint32_t granted = ProcessorsOfCgroup();
  if (granted != 0 && granted < count) count = granted;
  return count == 0 ? 1 : count;
}

}  // namespace gpuloom
