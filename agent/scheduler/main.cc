// gpuloom-scheduler: one process per GPU, trusted, on the node.
//
//   agent ──control.sock──→ scheduler ←──gpuloom.sock of an allocation── tenants
//                             │ starts, one per trust domain
//                             ↓
//                           executors
//
// Calls cuInit and never makes a context, so nothing that a tenant does can poison it. One thread:
// an epoll loop. Tenants' and executors' words are untrusted. Depends on nobody's parenthood: an
// agent that is replaced finds it again by lock file and control socket.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/scheduler/command_line.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/scheduler.h"

namespace gpuloom::scheduler {
namespace {

// What `gpuloom run` and the agent tell apart.
enum ExitStatus { kEnded = 0, kHostFailed = 1, kNoGpu = 3, kAlreadyRunning = 4 };

channel::UniqueFd TakeLock(const std::string& state_dir, int* status) {
  const std::string path = state_dir + "/" + control::kLockName;
  channel::UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.valid()) {
    LogError("cannot open the lock file " + path + ": " + strerror(errno));
    *status = kHostFailed;
    return lock;
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    LogError("another scheduler holds " + path + ": one runs per GPU; it is reached through " +
             state_dir + "/" + control::kControlSocketName);
    *status = kAlreadyRunning;
    return channel::UniqueFd();
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(lock.get(), 0) != 0 ||
      write(lock.get(), pid.data(), pid.size()) != static_cast<ssize_t>(pid.size())) {
    LogWarning("cannot write my process id to " + path + ": " + strerror(errno));
  }
  return lock;
}

// Sessions cost several descriptors each; the default soft limit of 1024 is for select(2), which
// nothing here uses.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Main(int argc, char** argv) {
  int status = 0;
  const std::optional<CommandLine> line = ParseCommandLine(argc, argv, &status);
  if (!line) return status;
  Options options = line->options;
  options.make_spare_memory = true;

  // Before the driver starts threads: they inherit the mask, and signals come through the loop.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  RaiseDescriptorLimit();

  if (mkdir(options.state_dir.c_str(), 0700) != 0 && errno != EEXIST) {
    LogError("cannot make the state folder " + options.state_dir + ": " + strerror(errno));
    return kHostFailed;
  }
  const channel::UniqueFd lock = TakeLock(options.state_dir, &status);
  if (!lock.valid()) return status;

  std::string error;
  const std::unique_ptr<Device> device = OpenDevice(options.cuda_library, line->gpu, &error);
  if (device == nullptr) {
    LogError(error);
    return kNoGpu;
  }
  const DeviceFacts& facts = device->facts();
  LogInfo("serves " + facts.name + ", " + FormatUuid(facts.uuid) + ", " +
          std::to_string(facts.total_memory_bytes >> 20) + " MiB, from " + options.state_dir);

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
      if (info.ssi_signo == SIGCHLD) {
        scheduler.OnChildExit();
      } else {
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
