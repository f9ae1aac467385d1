// gpuloom-executor: owns the CUDA context of one GPU and one trust domain, and runs the commands of
// that domain's tenants.
//
// Process model. Started by the scheduler with exec; descriptor 3 is the control socket to it, and
// nothing else is inherited but stderr for the log. Sessions come as descriptors over that socket:
// a tenant's ring (mapped read-only), its completion region, its arena and its doorbell.
//
//   ring thread (this one)   reads all rings, submits, polls completion, publishes; loop.h
//   workers (2 + 2)          module loads and lookups; memory mapping and pinning; work_pool.h
//   the driver's own threads
//
// Tenants' kernels run in this process's GPU address space, so it holds no capabilities and refuses
// the system calls it does not need. The process ends when the control socket closes, or after a
// device fault, when every tenant has been told; what it held is freed by the kernel and the
// driver.
#include <getopt.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "agent/executor/device.h"
#include "agent/executor/driver_output.h"
#include "agent/executor/log.h"
#include "agent/executor/loop.h"
#include "agent/executor/sandbox.h"

namespace {

using gpuloom::executor::Log;
using gpuloom::executor::LogLevel;

constexpr char kUsage[] =
    "usage: gpuloom-executor --gpu UUID --cuda-library PATH --domain NAME\n"
    "                        [--log-level error|info|debug]\n"
    "Started by gpuloom-scheduler, which passes the control socket as descriptor 3.\n";

struct Options {
  std::string gpu;
  std::string cuda_library;
  std::string domain;
  LogLevel log_level = LogLevel::kInfo;
};

bool ParseLevel(const std::string& text, LogLevel* level) {
  if (text == "error") {
    *level = LogLevel::kError;
  } else if (text == "info") {
    *level = LogLevel::kInfo;
  } else if (text == "debug") {
    *level = LogLevel::kDebug;
  } else {
    return false;
  }
  return true;
}

bool Parse(int argc, char** argv, Options* options) {
  static constexpr option kOptions[] = {{"gpu", required_argument, nullptr, 'g'},
                                        {"cuda-library", required_argument, nullptr, 'c'},
                                        {"domain", required_argument, nullptr, 'd'},
                                        {"log-level", required_argument, nullptr, 'l'},
                                        {nullptr, 0, nullptr, 0}};
  for (int c; (c = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (c) {
      case 'g':
        options->gpu = optarg;
        break;
      case 'd':
        options->domain = optarg;
        break;
      case 'c':
        options->cuda_library = optarg;
        break;
      case 'l':
        if (!ParseLevel(optarg, &options->log_level)) return false;
        break;
      default:
        return false;
    }
  }
  return optind == argc && !options->gpu.empty() && !options->cuda_library.empty();
}

// Tells the scheduler why there will be no executor.
int Refuse(gpuloom::channel::UniqueFd control, const std::string& error) {
  Log(LogLevel::kError, "%s", error.c_str());
  gpuloom::control::Connection connection(std::move(control));
  gpuloom::control::ExecutorReady ready = {};
  gpuloom::control::SetText(ready.message, error.c_str());
  (void)connection.Send(0, ready);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    fputs(kUsage, stderr);
    return 2;
  }
  // For who looks for a fault: the scheduler passes the variable on, and it counts more than what
  // the scheduler says.
  if (const char* level = getenv("GPULOOM_EXECUTOR_LOG"); level != nullptr) {
    ParseLevel(level, &options.log_level);
  }
  gpuloom::executor::SetLogLevel(options.log_level);
  gpuloom::channel::UniqueFd control(gpuloom::control::kExecutorControlFd);

  // A session is five descriptors; the scheduler bounds the sessions.
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  // More hardware queues than the default 8, so that tenants' streams do not wait in line for one
  // another; each makes the context 14 ms slower to make. Who wants another number sets the
  // variable for the scheduler (docs/design/start-up.md). Read by cuInit.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "16", 0);
  // Eager loading would make every load wait for the device, not only the first use (quiet.h).
  setenv("CUDA_MODULE_LOADING", "LAZY", 1);

  std::string error;
  gpuloom::Driver driver;
  gpuloom::executor::DriverOutput output;
  if (!output.Capture(&error) || !gpuloom::Load(options.cuda_library.c_str(), &driver, &error) ||
      !gpuloom::executor::DropPrivileges(&error)) {
    return Refuse(std::move(control), error);
  }
  Log(LogLevel::kDebug, "start: the driver is loaded");
  gpuloom::executor::Device device(driver);
  if (!device.Start(options.gpu, &error) || !gpuloom::executor::RefuseSystemCalls(&error)) {
    return Refuse(std::move(control), error);
  }
  Log(LogLevel::kDebug, "start: the context is made");
  Log(LogLevel::kInfo, "serves domain %s on %s", options.domain.c_str(), options.gpu.c_str());
  // For comparisons: as above.
  const char* batching = getenv("GPULOOM_EXECUTOR_BATCHING");
  const bool batches = batching == nullptr || strcmp(batching, "off") != 0;
  gpuloom::executor::Loop loop(&device, std::move(control), &output, batches);
  if (!loop.Start(&error)) {
    Log(LogLevel::kError, "%s", error.c_str());
    _exit(1);
  }
  if (batches) loop.ReserveGraphs();
  const auto outcome = loop.Run();
  if (outcome == gpuloom::executor::Loop::Outcome::kSchedulerGone) {
    Log(LogLevel::kInfo, "ends: the scheduler has hung up");
  }
  // Without destructors: kernels may still run, and the driver's own would wait for them.
  _exit(outcome == gpuloom::executor::Loop::Outcome::kSchedulerGone ? 0 : 1);
}
