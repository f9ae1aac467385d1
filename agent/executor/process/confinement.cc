// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/confinement.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "agent/executor/process/file_access.h"
#include "agent/executor/process/log.h"
#include "agent/executor/process/own_folder.h"
#include "agent/executor/process/own_user.h"
#include "agent/executor/process/sanitized.h"
#include "agent/executor/process/system_calls.h"

namespace gpuloom::executor {
namespace {

std::string Because(const std::string& what) { return what + ": " + strerror(errno); }

// Where memory runs out an executor goes before other processes of the node: it holds what tenants
// made it hold. Any process may make itself easier for the kernel to choose.
bool GoFirstWithoutMemory() {
  const channel::UniqueFd score(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  return score.valid() && write(score.get(), "1000", 4) == 4;
}

// Notes what was applied and what was not, for LogMechanisms: logging waits until it is known
// whether the process goes on at all.
class Mechanisms {
 public:
  explicit Mechanisms(std::vector<Confinement::Mechanism>* list) : list_(list) {}
  void Had(const char* name, std::string detail) {
    list_->push_back({name, true, std::move(detail)});
  }
  void Missing(const char* name, std::string why) {
    list_->push_back({name, false, std::move(why)});
  }

 private:
  std::vector<Confinement::Mechanism>* list_;
};

// A network and System V IPC of its own. If there is a user namespace as well, other processes of
// the same user outside of it cannot be inspected, whatever else is missing.
class Namespaces {
 public:
  explicit Namespaces(Mechanisms* mechanisms) : mechanisms_(mechanisms) {}

  enum class Kind { kOfTheNode, kWithUsers };
  // Does nothing once the process has entered some.
  void Enter(Kind kind) {
    if (is_in_) return;
    const int users = kind == Kind::kWithUsers ? CLONE_NEWUSER : 0;
    is_in_ = unshare(CLONE_NEWNET | CLONE_NEWIPC | users) == 0;
    if (is_in_ && users != 0) what_ = "of users, network and IPC";
    if (!is_in_) why_ = Because("unshare");
  }
  void Report() const {
    if (is_in_) {
      mechanisms_->Had("namespaces", what_);
    } else {
      mechanisms_->Missing("namespaces", why_);
    }
  }

 private:
  Mechanisms* mechanisms_;
  bool is_in_ = false;
  std::string what_ = "of network and IPC";
  std::string why_;
};

}  // namespace

bool Confine(const ConfinementWishes& wishes, Confinement* confinement, std::string* error) {
  Mechanisms mechanisms(&confinement->mechanisms);
  // Comes first, because the entry in /proc belongs to this user, and is out of reach once the
  // process is not dumpable.
  if (!GoFirstWithoutMemory()) {
    mechanisms.Missing(
        "out-of-memory score",
        Because("cannot be raised") + "; other processes of the node may be ended first");
  }

  Namespaces namespaces(&mechanisms);
  // Done while the process still has the right. A process that keeps its user needs a user
  // namespace, see Namespaces.
  if (wishes.user != 0) {
    namespaces.Enter(Namespaces::Kind::kOfTheNode);
    const std::vector<gid_t> groups = DeviceGroups("/dev");
    if (!BecomeUser(wishes.user, groups, error)) return false;
    std::string detail = std::to_string(wishes.user);
    for (const gid_t group : groups)
      detail += ", group " + std::to_string(group) + " of the GPU's device nodes";
    mechanisms.Had("own user", detail);
  } else {
    mechanisms.Missing("own user", "stays user " + std::to_string(geteuid()) +
                                       ", as the scheduler and other executors");
  }
  if (!wishes.folder.empty()) {
    // The operator provides the parent folders; if the process's own user may not create the folder
    // there, it has none.
    confinement->has_folder = mkdir(wishes.folder.c_str(), 0700) == 0;
    if (!confinement->has_folder) {
      mechanisms.Missing("own folder", Because("cannot make " + wishes.folder) +
                                           "; the driver keeps no compiled code");
    }
  }
  // Does nothing if the process has entered some as root. Without CAP_SYS_ADMIN a user namespace is
  // the only way to the others; where user namespaces are forbidden the others are tried alone.
  namespaces.Enter(Namespaces::Kind::kWithUsers);
  namespaces.Enter(Namespaces::Kind::kOfTheNode);
  namespaces.Report();
  // A user namespace gives all capabilities inside it; they are dropped here, too.
  if (!GiveUpPrivileges(error)) return false;

  if (wishes.lenient) {
    mechanisms.Missing("Landlock",
                       "the driver did not start with it; it reaches the files that its user may");
    mechanisms.Missing(
        "the list of allowed system calls",
        "the driver did not start with it; calls that none needs are refused instead");
    return RefuseSystemCalls(error);
  }
  if (!kSanitized) {
    ReachableFiles files = FilesOfEveryExecutor();
    AddLibraryFolders(wishes.driver, &files.read);
    if (confinement->has_folder) files.own.push_back(wishes.folder);
    // While any process holds it, the kernel keeps this entry and those above it, and with them the
    // rules.
    confinement->threads.Reset(open("/proc/self/task", O_PATH | O_CLOEXEC));
    std::string why;
    if (const int version = RestrictFiles(files, &why); version > 0) {
      mechanisms.Had("Landlock", "version " + std::to_string(version));
    } else {
      mechanisms.Missing("Landlock", why + "; it reaches the files that its user may");
    }
  } else {
    mechanisms.Missing("Landlock", "not in a build with sanitizers");
  }
  if (!RestrictSystemCalls(wishes.tells_refused_calls ? &confinement->refused_calls : nullptr,
                           error)) {
    return false;
  }
  if (kSanitized) {
    mechanisms.Missing("system call filter", "not in a build with sanitizers");
  } else if (wishes.tells_refused_calls && !confinement->refused_calls.valid()) {
    mechanisms.Missing("telling of refused system calls",
                       "the kernel gives no descriptor for it; they are refused all the same");
  }
  return true;
}

void LogMechanisms(const Confinement& confinement) {
  std::string had = "no capabilities";
  for (const auto& mechanism : confinement.mechanisms) {
    if (mechanism.is_had) had += std::string(", ") + mechanism.name + " " + mechanism.detail;
  }
  Log(LogLevel::kInfo, "confined: %s", had.c_str());
  for (const auto& mechanism : confinement.mechanisms) {
    if (!mechanism.is_had) {
      Log(LogLevel::kInfo, "confined without %s: %s", mechanism.name, mechanism.detail.c_str());
    }
  }
}

}  // namespace gpuloom::executor
