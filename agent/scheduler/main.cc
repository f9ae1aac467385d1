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
#include <string.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "agent/node/gpu_uuid.h"
#include "agent/scheduler/command_line.h"
#include "agent/scheduler/descriptor_limit.h"
#include "agent/scheduler/device.h"
#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/scheduler.h"
#include "agent/scheduler/signals.h"
#include "agent/scheduler/state_lock.h"
#include "proto/control/version.h"
#include "proto/cuda/driver_features.h"
#include "proto/wire/regions.h"

namespace gpuloom::scheduler {
namespace {

// `gpuloom run` and the agent act on these.
enum ExitStatus { kEnded = 0, kHostFailed = 1, kNoGpu = 3, kAlreadyRunning = 4 };

int Fail(ExitStatus status, const std::string& error) {
  LogError(error);
  return status;
}

bool HasPagesOf4KiB(std::string* error) {
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  if (page_bytes == int64_t{wire::kPageBytes}) return true;
  *error = "this kernel's pages have " + std::to_string(page_bytes >> 10) +
           " KiB, and gpuloom needs a kernel with pages of 4 KiB";
  return false;
}

void LogWhatItServes(const DeviceFacts& facts, const std::string& state_dir) {
  LogInfo("serves " + facts.name + ", " + FormatUuid(facts.uuid) + ", " +
          std::to_string(facts.total_memory_bytes >> 20) + " MiB, from " + state_dir);
  if (const std::string off = MissingFeatures(facts.driver_version); !off.empty())
    LogInfo("cuda: " + off);
}

// Until it is to end, or nobody uses it any more.
int Serve(const Options& options, Device* device) {
  EventLoop loop;
  SignalWatch signals;
  if (!loop.valid() || !signals.valid()) {
    return Fail(kHostFailed,
                std::string("cannot make epoll or signal descriptors: ") + strerror(errno));
  }
  Scheduler scheduler(&loop, device, options);
  signals.Begin(&loop, &scheduler);
  std::string error;
  if (!scheduler.Listen(&error)) return Fail(kHostFailed, error);
  loop.Run();
  LogInfo("ends");
  return kEnded;
}

int Main(int argc, char** argv) {
  int status = 0;
  const std::optional<CommandLine> line = ParseCommandLine(argc, argv, &status);
  if (!line) return status;
  Options options = line->options;
  options.make_spare_memory = true;
  options.version = kVersion;

  BlockSignals();  // before the driver starts threads
  RaiseDescriptorLimit();
  std::string error;
  if (!HasPagesOf4KiB(&error)) return Fail(kHostFailed, error);
  const LockFile lock = LockState(options.state_dir);
  if (!lock.fd.valid()) {
    return Fail(lock.is_held_by_another ? kAlreadyRunning : kHostFailed, lock.error);
  }
  const auto users = ExecutorUsers::Choose(line->executor_users, ReadUserRights(), &error);
  if (!users) return Fail(kHostFailed, error);
  options.executor_users = *users;
  if (!users->any()) LogInfo(users->lack());
  const std::unique_ptr<Device> device = OpenDevice(options.cuda_library, line->gpu, &error);
  if (device == nullptr) return Fail(kNoGpu, error);
  LogWhatItServes(device->facts(), options.state_dir);
  return Serve(options, device.get());
}

}  // namespace
}  // namespace gpuloom::scheduler

int main(int argc, char** argv) { return gpuloom::scheduler::Main(argc, argv); }
