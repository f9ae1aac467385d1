// SPDX-License-Identifier: Apache-2.0
// gpuloom-scheduler: one process per GPU, trusted, on the node.
//
//   agent ──control.sock──→ scheduler ←──gpuloom.sock of an allocation── tenants
//                             │ starts, one per trust domain
//                             ↓
//                           executors
//
// Calls cuInit and never makes a context, so nothing that a tenant does can poison it. One thread:
// an epoll loop. Messages of tenants and executors are untrusted. It does not need its parent: a
// new agent finds it by lock file and control socket.
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/node/gpu_uuid.h"
#include "agent/node/log_signals.h"
#include "agent/scheduler/command_line.h"
#include "agent/scheduler/descriptor_limit.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/scheduler.h"
#include "agent/scheduler/state_lock.h"
#include "proto/control/version.h"
#include "proto/cuda/driver_features.h"
#include "proto/wire/regions.h"

namespace gpuloom::scheduler {
namespace {

// `gpuloom run` and the agent act on these.
enum ExitStatus { kEnded = 0, kHostFailed = 1, kNoGpu = 3, kAlreadyRunning = 4 };

int Main(int argc, char** argv) {
  int status = 0;
  const std::optional<CommandLine> line = ParseCommandLine(argc, argv, &status);
  if (!line) return status;
  Options options = line->options;
  options.make_spare_memory = true;
  options.version = kVersion;

  // Before the driver starts threads: they inherit the mask, and signals come through the loop.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, kLogMoreSignal, kLogAsConfiguredSignal}) {
    sigaddset(&signals, signal);
  }
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();

  if (sysconf(_SC_PAGESIZE) != int64_t{wire::kPageBytes}) {
    LogError("this kernel's pages have " + std::to_string(sysconf(_SC_PAGESIZE) >> 10) +
             " KiB, and gpuloom needs a kernel with pages of 4 KiB");
    return kHostFailed;
  }
  const LockFile lock = LockState(options.state_dir);
  if (!lock.fd.valid()) {
    LogError(lock.error);
    return lock.is_held_by_another ? kAlreadyRunning : kHostFailed;
  }

  std::string error;
  const auto users = ExecutorUsers::Choose(line->executor_users, ReadUserRights(), &error);
  if (!users) {
    LogError(error);
    return kHostFailed;
  }
  options.executor_users = *users;
  if (!users->any()) LogInfo(users->lack());
  const std::unique_ptr<Device> device = OpenDevice(options.cuda_library, line->gpu, &error);
  if (device == nullptr) {
    LogError(error);
    return kNoGpu;
  }
  const DeviceFacts& facts = device->facts();
  LogInfo("serves " + facts.name + ", " + FormatUuid(facts.uuid) + ", " +
          std::to_string(facts.total_memory_bytes >> 20) + " MiB, from " + options.state_dir);
  if (const std::string off = MissingFeatures(facts.driver_version); !off.empty())
    LogInfo("cuda: " + off);

  EventLoop loop;
  const channel::UniqueFd signal_fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!loop.valid() || !signal_fd.valid()) {
    LogError(std::string("cannot make epoll or signal descriptors: ") + strerror(errno));
    return kHostFailed;
  }
  Scheduler scheduler(&loop, device.get(), options);
  const Watch watch = loop.WatchFd(signal_fd.get(), EPOLLIN, [&](uint32_t) {
    signalfd_siginfo info;
    while (read(signal_fd.get(), &info, sizeof(info)) == sizeof(info)) {
      switch (info.ssi_signo) {
        case SIGCHLD:
          scheduler.OnChildExit();
          break;
        case kLogMoreSignal:
        case kLogAsConfiguredSignal:
          LogMore("gpuloom-scheduler", info.ssi_signo == kLogMoreSignal);
          scheduler.LetExecutorsLog();
          break;
        default:
          scheduler.Shutdown();
      }
    }
  });
  if (!scheduler.Listen(&error)) {
    LogError(error);
    return kHostFailed;
  }
  loop.Run();
  LogInfo("ends");
  return kEnded;
}

}  // namespace
}  // namespace gpuloom::scheduler

int main(int argc, char** argv) { return gpuloom::scheduler::Main(argc, argv); }
