// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/environment.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "agent/executor/device/hardware_queues.h"

namespace gpuloom::executor {

LogLevel LogLevelOf(LogLevel given) {
  const char* level = getenv("GPULOOM_EXECUTOR_LOG");
  return level == nullptr ? given : ParseLogLevel(level).value_or(given);
}

namespace {

// On unless it says exactly "off".
bool IsOn(const char* variable) {
  const char* value = getenv(variable);
  return value == nullptr || strcmp(value, "off") != 0;
}

}  // namespace

bool IsBatchingOn() { return IsOn("GPULOOM_EXECUTOR_BATCHING"); }
bool IsSharingOn() { return IsOn("GPULOOM_EXECUTOR_SHARING"); }

std::string CuptiSetting() {
  const char* value = getenv("GPULOOM_EXECUTOR_CUPTI");
  return value == nullptr ? "" : value;
}

uint32_t HardwareQueueCount() {
  const char* value = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const int queues = value == nullptr ? 0 : atoi(value);
  return queues < 1 || queues > 32 ? 8 : static_cast<uint32_t>(queues);  // the driver's default
}

void PrepareForDriver() {
  // The log is a pipe, and its reader may be gone.
  signal(SIGPIPE, SIG_IGN);
  // A session takes five descriptors; the scheduler bounds the number of sessions.
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  // By default timers are up to 50 µs late, as long as a short wait for the device
  // (session/loop.h).
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  // More hardware queues than the default of 8, so that tenants' streams do not wait for one
  // another; each makes creating the context 14 ms slower. To change the number, set the variable
  // for the agent, the scheduler or `gpuloom run` (docs/design/start-up.md). Read by cuInit.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(kHardwareQueues).c_str(), 0);
  // Eager loading would make every load wait for the device, not only the first use (quiet.h).
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);
}

}  // namespace gpuloom::executor
