// SPDX-License-Identifier: Apache-2.0
// A CUDA driver that takes over the executor it is loaded into, as a hole in a driver would let a
// tenant: the software GPU (this library depends on it) but for one function, which runs when the
// first memory is given to a tenant and then tries whatever reaches beyond the executor.
//
// Only in the executor of the domain "intruder", and only where GPULOOM_EXECUTOR_INTRUDER names a
// folder: the file `targets` there says whom to attack ("victim 12", one a line), and `results` gets
// one line for each attempt: "reached NAME" or "refused NAME: errno". Both are opened before the
// executor is confined. The last line is "done".
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "proto/cuda/cuda_all.h"

namespace {

constexpr long kIoUringSetup = 425;
constexpr long kPidfdSendSignal = 424;
constexpr long kPidfdOpen = 434;
constexpr long kPidfdGetfd = 438;
constexpr long kClone3 = 435;

std::map<std::string, std::string> g_targets;

// What this process was told to serve.
bool IsOfDomain(const char* wanted) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  bool is_next = false;
  for (std::string word; std::getline(file, word, '\0'); is_next = word == "--domain") {
    if (is_next && word == wanted) return true;
  }
  return false;
}

int OpenResults() {
  const char* folder = getenv("GPULOOM_EXECUTOR_INTRUDER");
  if (folder == nullptr || !IsOfDomain("intruder")) return -1;
  std::ifstream file(std::string(folder) + "/targets");
  for (std::string name, value; file >> name >> value;) g_targets[name] = value;
  return open((std::string(folder) + "/results").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
}

// While the driver is loaded, behind g_targets.
const int g_results = OpenResults();

void Write(const std::string& line) {
  if (write(g_results, (line + "\n").c_str(), line.size() + 1) < 0) abort();
}

void Try(const std::string& name, const std::function<bool()>& reaches) {
  errno = 0;
  if (reaches()) {
    Write("reached " + name);
  } else {
    Write("refused " + name + ": " + strerror(errno));
  }
}

pid_t Pid(const std::string& target) { return atoi(g_targets[target].c_str()); }

bool Opens(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

// A file that was not there; it is not left there.
bool Creates(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  close(fd);
  unlink(path.c_str());
  return true;
}

// What one of a process's descriptors leads to.
bool FollowsDescriptor(const std::string& proc) {
  char target[64];
  for (int fd = 0; fd < 16; ++fd) {
    const std::string link = proc + "/fd/" + std::to_string(fd);
    if (readlink(link.c_str(), target, sizeof(target)) > 0) return true;
  }
  return false;
}

bool Lists(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  char entries[4096];
  const long bytes = syscall(SYS_getdents64, fd, entries, sizeof(entries));
  close(fd);
  return bytes > 0;
}

sockaddr_un Address(const std::string& name, socklen_t* size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, name.data(), std::min(name.size(), sizeof(address.sun_path) - 1));
  *size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return address;
}

bool Connects(int type, const std::string& name) {
  const int fd = socket(AF_UNIX, type, 0);
  if (fd < 0) return false;
  socklen_t size;
  const sockaddr_un address = Address(name, &size);
  const bool connected = connect(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0;
  close(fd);
  return connected;
}

// A pair of datagram sockets sends anywhere, connected as it is.
bool SendsFromAPair(const std::string& name) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0) return false;
  socklen_t size;
  const sockaddr_un address = Address(name, &size);
  const bool sent =
      sendto(pair[0], "x", 1, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&address), size) == 1;
  const int error = errno;
  close(pair[0]);
  close(pair[1]);
  errno = error;
  return sent;
}

// The kernel signals a descriptor's owner when something can be read.
void SignalAsOwner(pid_t target) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return;
  fcntl(pair[0], F_SETOWN, target);
  ioctl(pair[0], FIOSETOWN, &target);
  fcntl(pair[0], F_SETSIG, SIGUSR1);
  fcntl(pair[0], F_SETFL, O_ASYNC | O_NONBLOCK);
  send(pair[1], "x", 1, MSG_NOSIGNAL);
  close(pair[0]);
  close(pair[1]);
}

bool ReadsMemory(pid_t target) {
  const int fd = open(("/proc/" + std::to_string(target) + "/mem").c_str(), O_RDWR | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

bool ReadsByCall(pid_t target) {
  char here[8];
  const iovec local = {here, sizeof(here)};
  // Where nothing is mapped the answer is EFAULT, and only who may read at all hears it.
  const iovec remote = {reinterpret_cast<void*>(0x1000), sizeof(here)};
  return process_vm_readv(target, &local, 1, &remote, 1, 0) >= 0 || errno == EFAULT;
}

bool TakesDescriptor(pid_t target) {
  const long process = syscall(kPidfdOpen, target, 0);
  if (process < 0) return false;
  const long fd = syscall(kPidfdGetfd, process, 0, 0);
  return fd >= 0;
}

bool Traces(pid_t target) {
  if (ptrace(PTRACE_SEIZE, target, nullptr, nullptr) != 0) return false;
  ptrace(PTRACE_DETACH, target, nullptr, nullptr);
  return true;
}

bool Clones(unsigned long flags) {
  const long child = syscall(SYS_clone, flags | SIGCHLD, nullptr, nullptr, nullptr, 0);
  if (child == 0) _exit(0);
  if (child < 0) return false;
  waitpid(static_cast<pid_t>(child), nullptr, 0);
  return true;
}

bool Sends(pid_t target, int signal) { return kill(target, signal) == 0; }

// Whatever of a process another may look at or change.
void AttackProcess(const std::string& who) {
  const pid_t pid = Pid(who);
  const std::string proc = "/proc/" + g_targets[who];
  Try("memory of the " + who, [&] { return ReadsMemory(pid); });
  Try("memory of the " + who + " by process_vm_readv", [&] { return ReadsByCall(pid); });
  Try("descriptors of the " + who, [&] { return FollowsDescriptor(proc); });
  Try("descriptors of the " + who + " by pidfd_getfd", [&] { return TakesDescriptor(pid); });
  Try("root folder of the " + who, [&] { return Lists(proc + "/root"); });
  Try("environment of the " + who, [&] { return Opens(proc + "/environ", O_RDONLY); });
  Try("mappings of the " + who, [&] { return Opens(proc + "/maps", O_RDONLY); });
  Try("tracing the " + who, [&] { return Traces(pid); });
  Try("signal to the " + who, [&] { return Sends(pid, 0); });
  Try("signal to a thread of the " + who,
      [&] { return syscall(SYS_tgkill, pid, pid, 0) == 0 || syscall(SYS_tkill, pid, 0) == 0; });
  Try("queued signal to the " + who, [&] {
    siginfo_t info{};
    info.si_code = SI_QUEUE;
    return syscall(SYS_rt_sigqueueinfo, pid, 0, &info) == 0;
  });
  Try("signal by descriptor to the " + who, [&] {
    const long process = syscall(kPidfdOpen, pid, 0);
    return process >= 0 && syscall(kPidfdSendSignal, process, 0, nullptr, 0) == 0;
  });
  Try("limits of the " + who, [&] {
    rlimit files;
    return prlimit(pid, RLIMIT_NOFILE, nullptr, &files) == 0;
  });
  Try("priority of the " + who, [&] { return setpriority(PRIO_PROCESS, pid, 19) == 0; });
}

void AttackFiles() {
  Try("secret file", [] { return Opens(g_targets["secret"], O_RDONLY); });
  Try("readable file outside", [] { return Opens(g_targets["readable"], O_RDONLY); });
  Try("writable file outside", [] { return Opens(g_targets["writable"], O_WRONLY); });
  Try("new file in an open folder", [] { return Creates(g_targets["open-folder"] + "/made"); });
  Try("new folder in an open folder",
      [] { return mkdir((g_targets["open-folder"] + "/folder").c_str(), 0700) == 0; });
  Try("removing a file in an open folder",
      [] { return unlink((g_targets["open-folder"] + "/removable").c_str()) == 0; });
  Try("renaming a folder in an open folder", [] {
    return rename((g_targets["open-folder"] + "/moved").c_str(),
                  (g_targets["open-folder"] + "/away").c_str()) == 0;
  });
  Try("link in an open folder",
      [] { return symlink("/", (g_targets["open-folder"] + "/link").c_str()) == 0; });
  Try("new file in /tmp", [] { return Creates("/tmp/gpuloom-intruder"); });
  Try("new file in /var/lib", [] { return Creates("/var/lib/gpuloom-intruder"); });
  Try("new file in /dev/shm", [] { return Creates("/dev/shm/gpuloom-intruder"); });
  Try("list of /root", [] { return Lists("/root"); });
  Try("list of /tmp", [] { return Lists("/tmp"); });
  Try("list of the state folder", [] { return Lists(g_targets["state"]); });
  Try("list of all processes", [] { return Lists("/proc"); });
  Try("terminal", [] { return Opens("/dev/tty", O_RDWR); });
  Try("own out-of-memory score", [] { return Opens("/proc/self/oom_score_adj", O_WRONLY); });
  Try("own out-of-memory score as a thread's",
      [] { return Opens("/proc/thread-self/oom_score_adj", O_WRONLY); });
  Try("setting of the kernel", [] { return Opens("/proc/sys/kernel/core_pattern", O_WRONLY); });
  Try("folder of the victim", [] { return Lists(g_targets["victims-folder"]); });
  Try("new file in the folder of the victim",
      [] { return Creates(g_targets["victims-folder"] + "/made"); });
}

// Descriptors are what no later rule takes away: of files there are none but those in memory.
void AttackOwnDescriptors() {
  Try("file that it has a descriptor of", [] {
    for (int fd = 0; fd < 256; ++fd) {
      struct stat status;
      char name[64] = {};
      if (fd == g_results || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) continue;
      const std::string link = "/proc/self/fd/" + std::to_string(fd);
      if (readlink(link.c_str(), name, sizeof(name) - 1) < 0) continue;
      if (strncmp(name, "/memfd:", 7) != 0) return true;
    }
    return false;
  });
  Try("asking descriptor of the filter", [] {
    for (int fd = 0; fd < 256; ++fd) {
      char name[64] = {};
      const std::string link = "/proc/self/fd/" + std::to_string(fd);
      if (readlink(link.c_str(), name, sizeof(name) - 1) < 0) continue;
      if (strstr(name, "seccomp") != nullptr) return true;
    }
    return false;
  });
}

void AttackSockets() {
  Try("control.sock", [] { return Connects(SOCK_SEQPACKET, g_targets["control"]); });
  Try("another allocation's socket", [] { return Connects(SOCK_SEQPACKET, g_targets["door"]); });
  Try("datagram to a path", [] { return SendsFromAPair(g_targets["datagram"]); });
  Try("datagram to an abstract name",
      [] { return SendsFromAPair(std::string(1, '\0') + g_targets["abstract"]); });
  for (const auto& [name, family] : std::map<std::string, int>{{"internet", AF_INET},
                                                               {"internet 6", AF_INET6},
                                                               {"netlink", AF_NETLINK},
                                                               {"packet", AF_PACKET},
                                                               {"vsock", AF_VSOCK},
                                                               {"Unix", AF_UNIX}}) {
    Try(name + " socket", [&, family = family] { return socket(family, SOCK_DGRAM, 0) >= 0; });
  }
}

void AttackKernel() {
  Try("user namespace by clone", [] { return Clones(CLONE_NEWUSER); });
  Try("user namespace by unshare", [] { return unshare(CLONE_NEWUSER) == 0; });
  Try("user namespace by clone3", [] {
    uint64_t arguments[8] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD, 0, 0, 0};
    const long child = syscall(kClone3, arguments, sizeof(arguments));
    if (child == 0) _exit(0);
    return child > 0;
  });
  Try("child process", [] { return Clones(0); });
  Try("program", [] {
    char name[] = "/bin/true";
    char* arguments[] = {name, nullptr};
    execv(name, arguments);
    return false;
  });
  Try("program from memory", [] {
    char* arguments[] = {nullptr};
    const int fd = memfd_create("program", 0);
    syscall(SYS_execveat, fd, "", arguments, arguments, AT_EMPTY_PATH);
    return errno != EPERM && errno != ENOSYS;
  });
  Try("io_uring", [] {
    char parameters[120] = {};
    return syscall(kIoUringSetup, 8, parameters) >= 0;
  });
  Try("perf event", [] {
    perf_event_attr event{};
    event.type = PERF_TYPE_SOFTWARE;
    event.size = sizeof(event);
    return syscall(SYS_perf_event_open, &event, 0, -1, -1, 0) >= 0;
  });
  Try("userfaultfd", [] { return syscall(SYS_userfaultfd, 1) >= 0; });
  Try("key", [] { return syscall(SYS_add_key, "user", "gpuloom", "x", 1, -4) >= 0; });
  Try("System V shared memory", [] { return shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600) >= 0; });
  Try("message queue", [] { return mq_open("/gpuloom", O_CREAT | O_RDWR, 0600, nullptr) >= 0; });
  Try("another user", [] { return setresuid(1, 1, 1) == 0 || setresgid(1, 1, 1) == 0; });
  Try("capabilities", [] {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2] = {};
    sets[0].effective = sets[0].permitted = 1u << CAP_KILL;
    return syscall(SYS_capset, &header, sets) == 0;
  });
  Try("being looked at by others", [] { return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0; });
  Try("a filter of its own",
      [] { return syscall(SYS_seccomp, 1, 0, nullptr) == 0 || errno == EFAULT; });
}

void Attack() {
  for (const char* who : {"scheduler", "victim", "bystander"}) AttackProcess(who);
  AttackFiles();
  AttackOwnDescriptors();
  AttackSockets();
  AttackKernel();
  Try("signal to everybody", [] { return Sends(-1, 0); });
  SignalAsOwner(Pid("bystander"));
  SignalAsOwner(Pid("scheduler"));
  Write("user " + std::to_string(getuid()) + " " + std::to_string(geteuid()));
  Write("done");
}

}  // namespace

extern "C" [[gnu::visibility("default")]] CUresult cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle* handle, void* of, CUmemAllocationHandleType type) {
  static std::atomic<bool> began{false};
  if (g_results >= 0 && !began.exchange(true)) Attack();
  using Import = decltype(&cuMemImportFromShareableHandle);
  static const auto import =
      reinterpret_cast<Import>(dlsym(RTLD_NEXT, "cuMemImportFromShareableHandle"));
  return import(handle, of, type);
}
