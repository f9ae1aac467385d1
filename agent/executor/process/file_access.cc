// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/file_access.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "proto/channel/unique_fd.h"

namespace gpuloom::executor {
namespace {

// linux/landlock.h, which older kernels' headers have in part.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr uint32_t kAskVersion = 1;
constexpr uint32_t kPathBeneath = 1;
constexpr uint64_t kExecute = 1 << 0;
constexpr uint64_t kWriteFile = 1 << 1;
constexpr uint64_t kReadFile = 1 << 2;
constexpr uint64_t kReadFolder = 1 << 3;
constexpr uint64_t kRemoveFolder = 1 << 4;
constexpr uint64_t kRemoveFile = 1 << 5;
constexpr uint64_t kMakeFolder = 1 << 7;
constexpr uint64_t kMakeFile = 1 << 8;
constexpr uint64_t kMakeLink = 1 << 12;
constexpr uint64_t kMoveBetweenFolders = 1 << 13;  // from version 2 on
constexpr uint64_t kTruncate = 1 << 14;            // 3
constexpr uint64_t kControlDevice = 1 << 15;       // 5
constexpr uint64_t kBindTcp = 1 << 0;              // 4
constexpr uint64_t kConnectTcp = 1 << 1;           // 4
constexpr uint64_t kAbstractSockets = 1 << 0;      // 6
constexpr uint64_t kSignals = 1 << 1;              // 6

// landlock_ruleset_attr and landlock_path_beneath_attr of the newest version that is used here.
struct Ruleset {
  uint64_t files;
  uint64_t network;
  uint64_t scopes;
};

struct [[gnu::packed]] PathRule {
  uint64_t allowed;
  int32_t parent;
};

// All that the kernel's version can refuse. What a ruleset handles is refused unless a rule allows
// it; an older kernel would refuse the whole ruleset for a bit that it does not know.
Ruleset Handled(long version) {
  Ruleset handled{(kMakeLink << 1) - 1, 0, 0};
  if (version >= 2) handled.files |= kMoveBetweenFolders;
  if (version >= 3) handled.files |= kTruncate;
  if (version >= 4) handled.network = kBindTcp | kConnectTcp;
  if (version >= 5) handled.files |= kControlDevice;
  if (version >= 6) handled.scopes = kAbstractSockets | kSignals;
  return handled;
}

// A path that is missing, or that this user cannot even see, needs no rule. The kernel refuses
// rules that give rights of folders to a file.
bool Allow(int ruleset, const std::string& path, uint64_t rights) {
  const channel::UniqueFd fd(open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat status;
  if (!fd.valid() || fstat(fd.get(), &status) != 0) return errno == ENOENT || errno == EACCES;
  constexpr uint64_t kOfFiles = kExecute | kWriteFile | kReadFile | kTruncate | kControlDevice;
  const PathRule rule{S_ISDIR(status.st_mode) ? rights : rights & kOfFiles, fd.get()};
  return syscall(kAddRule, ruleset, kPathBeneath, &rule, 0) == 0;
}

}  // namespace

ReachableFiles FilesOfEveryExecutor() {
  ReachableFiles files;
  files.read = {"/usr",          "/lib",          "/lib64",
                "/etc",          "/opt",          "/sys",
                "/proc/self",    "/proc/cpuinfo", "/proc/meminfo",
                "/proc/stat",    "/proc/uptime",  "/proc/loadavg",
                "/proc/version", "/proc/devices", "/proc/modules",
                "/proc/driver",  "/proc/sys",     "/proc/filesystems",
                "/dev/urandom",  "/dev/random"};
  // cuInit opens /proc/self/task/TID/comm to name its threads, with O_CREAT and O_TRUNC, and answers
  // CUDA_ERROR_OPERATING_SYSTEM where it cannot (seen with driver 580).
  files.written = {"/proc/self/task"};
  files.devices = {"/dev/null", "/dev/zero"};
  std::error_code unreadable;
  // A range-for would throw where reading fails half way.
  for (std::filesystem::directory_iterator entry("/dev", unreadable), end;
       !unreadable && entry != end; entry.increment(unreadable)) {
    if (entry->path().filename().string().rfind("nvidia", 0) == 0) {
      files.devices.push_back(entry->path());
    }
  }
  return files;
}

// The driver loads its other libraries (the PTX compiler, for one) on demand, from where it lies,
// by either name.
void AddLibraryFolders(const void* function, std::vector<std::string>* folders) {
  Dl_info library{};
  if (function == nullptr || dladdr(function, &library) == 0) return;
  const std::filesystem::path path = library.dli_fname;
  if (!path.is_absolute()) return;
  folders->push_back(path.parent_path());
  std::error_code missing;
  const std::filesystem::path real = std::filesystem::canonical(path, missing);
  if (!missing) folders->push_back(real.parent_path());
}

int RestrictFiles(const ReachableFiles& files, std::string* why) {
  const auto fail = [&](const char* what) {
    *why = std::string(what) + ": " + strerror(errno);
    return 0;
  };
  const long version = syscall(kCreateRuleset, nullptr, 0, kAskVersion);
  if (version <= 0) return fail("the kernel has none");
  const Ruleset handled = Handled(version);
  // A kernel takes a longer structure than its own while the rest is zero.
  const channel::UniqueFd ruleset(
      static_cast<int>(syscall(kCreateRuleset, &handled, sizeof(handled), 0)));
  if (!ruleset.valid()) return fail("making the rules");
  constexpr uint64_t kRead = kReadFile | kReadFolder;
  constexpr uint64_t kDevice = kRead | kWriteFile | kControlDevice;
  constexpr uint64_t kOwn = kRead | kWriteFile | kRemoveFolder | kRemoveFile | kMakeFolder |
                            kMakeFile | kMoveBetweenFolders | kTruncate;
  const std::pair<const std::vector<std::string>&, uint64_t> rules[] = {
      {files.read, kRead},
      {files.written, kRead | kWriteFile | kTruncate},
      {files.devices, kDevice},
      {files.own, kOwn}};
  for (const auto& [paths, rights] : rules) {
    for (const std::string& path : paths) {
      if (!Allow(ruleset.get(), path, rights & handled.files)) {
        return fail(("a rule for " + path).c_str());
      }
    }
  }
  if (syscall(kRestrictSelf, ruleset.get(), 0) != 0) return fail("enforcing the rules");
  return static_cast<int>(version);
}

}  // namespace gpuloom::executor
