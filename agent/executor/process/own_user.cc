// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/own_user.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

namespace gpuloom::executor {
namespace {

bool Fail(const std::string& what, std::string* error) {
  *error = "confinement: " + what + ": " + strerror(errno);
  return false;
}

// Adds the group of a device node that everybody may not open, but the group may.
void AddGroup(const std::string& path, std::vector<gid_t>* groups) {
  struct stat status;
  constexpr mode_t kOthers = S_IROTH | S_IWOTH;
  constexpr mode_t kGroup = S_IRGRP | S_IWGRP;
  if (stat(path.c_str(), &status) != 0 || S_ISDIR(status.st_mode) ||
      (status.st_mode & kOthers) == kOthers || (status.st_mode & kGroup) != kGroup ||
      std::find(groups->begin(), groups->end(), status.st_gid) != groups->end()) {
    return;
  }
  groups->push_back(status.st_gid);
}

// Removes capabilities also from programs that this process would start.
void ForbidCapabilities() {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) {
    // Works only with CAP_SETPCAP; a process without that starts no programs.
    prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
}

}  // namespace

std::vector<gid_t> DeviceGroups(const std::string& device_folder) {
  std::vector<gid_t> groups;
  std::error_code unreadable;
  // Range-fors would throw where reading fails half way.
  for (std::filesystem::directory_iterator entry(device_folder, unreadable), end;
       !unreadable && entry != end; entry.increment(unreadable)) {
    if (entry->path().filename().string().rfind("nvidia", 0) != 0) continue;
    AddGroup(entry->path(), &groups);
    // Most are no folders.
    std::error_code no_folder;
    for (std::filesystem::directory_iterator inner(entry->path(), no_folder);
         !no_folder && inner != end; inner.increment(no_folder)) {
      AddGroup(inner->path(), &groups);
    }
  }
  return groups;
}

// Groups before the user: afterwards the right to change them is gone.
bool BecomeUser(unsigned user, const std::vector<gid_t>& groups, std::string* error) {
  // Done here, because another user than root does not have the right to.
  ForbidCapabilities();
  const std::string name = "user " + std::to_string(user);
  if (setgroups(groups.size(), groups.data()) != 0) {
    return Fail("taking the groups of " + name + " (needs CAP_SETGID)", error);
  }
  if (setresgid(user, user, user) != 0) {
    return Fail("becoming group " + std::to_string(user) + " (needs CAP_SETGID)", error);
  }
  if (setresuid(user, user, user) != 0)
    return Fail("becoming " + name + " (needs CAP_SETUID)", error);
  return true;
}

bool GiveUpPrivileges(std::string* error) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return Fail("PR_SET_NO_NEW_PRIVS", error);
  // Repeated for a process that has kept its user; and in a user namespace it has all of them
  // again.
  ForbidCapabilities();
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  // Two structures, for 64 capabilities.
  __user_cap_data_struct none[2] = {};
  if (syscall(SYS_capset, &header, none) != 0) return Fail("dropping capabilities", error);
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return Fail("PR_SET_DUMPABLE", error);
  // Comes after the change of user, which resets it.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return Fail("PR_SET_PDEATHSIG", error);
  return true;
}

}  // namespace gpuloom::executor
