// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/executor_folders.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "agent/node/process.h"
#include "agent/node/random_hex.h"
#include "agent/scheduler/log.h"

namespace gpuloom::scheduler {
namespace {

constexpr char kPrefix[] = "gpuloom-executor-";

// What to do about one that stays. Its user, if it has one of its own, stays locked.
std::string Left(const ExecutorUser& user) {
  return "; remove it by hand" +
         (user.id == 0 ? ""
                       : "; user " + std::to_string(user.id) +
                             " is given to no other executor until the scheduler's next start");
}

}  // namespace

ExecutorFolders::ExecutorFolders(EventLoop* loop, std::string parent, std::string program)
    : loop_(loop), parent_(std::move(parent)), program_(std::move(program)) {
  // A folder that everybody may write to without the sticky bit is the one case that is corrected.
  // A folder that others cannot write to is the operator's choice.
  struct stat status;
  if (stat(parent_.c_str(), &status) != 0 || (status.st_mode & S_IWOTH) == 0 ||
      (status.st_mode & S_ISVTX) != 0) {
    return;
  }
  // Kubernetes creates an emptyDir like this. Without the sticky bit an executor could put its own
  // folder in another's place.
  if (chmod(parent_.c_str(), (status.st_mode & 07777) | S_ISVTX) != 0) {
    LogWarning("executor: their folders lie in " + parent_ +
               ", where everybody may rename them, and it cannot be made sticky (chmod +t): " +
               strerror(errno));
  }
}

std::string ExecutorFolders::NewPath() const { return parent_ + "/" + kPrefix + RandomHex(8); }

void ExecutorFolders::Remove(const std::string& path, ExecutorUser user) {
  struct stat status;
  // The executor may have ended before it made it.
  if (lstat(path.c_str(), &status) != 0 && errno == ENOENT) return;
  Removal& removal = removals_[path];
  removal.user = std::move(user);
  if (Start(path, removal)) {
    // The process is killed, and Reap then finds that it was late: it is not tried again.
    removal.deadline = loop_->After(kRemovalTimeout, [this, path] {
      Removal& late = removals_.at(path);
      late.is_late = true;
      std::string why;
      if (!late.process.Kill(&why)) LogError("executor: the removal of " + path + " hangs: " + why);
    });
    return;
  }
  // The user's number stays locked: another executor with it could write to what is left.
  lost_.push_back(std::move(removal.user));
  removals_.erase(path);
}

bool ExecutorFolders::Start(const std::string& path, Removal& removal) {
  ++removal.tries;
  // As the folder's own user, who can remove what is in it but nothing of anybody else's.
  std::vector<std::string> command = {program_, "--remove", path};
  if (removal.user.id != 0) {
    command.insert(command.end(), {"--user", std::to_string(removal.user.id)});
  }
  std::string error;
  if (!removal.process.Start(command, STDERR_FILENO, {}, &error)) {
    LogWarning("executor: cannot remove " + path + ", the folder of one that has ended: " + error +
               Left(removal.user));
    return false;
  }
  return true;
}

void ExecutorFolders::RemoveLeft(const ExecutorUsers& users) {
  RemoveUnused(users);
  next_look_ = loop_->After(kNextLook, [this, &users] { RemoveLeft(users); });
}

void ExecutorFolders::RemoveUnused(const ExecutorUsers& users) {
  std::error_code unreadable;
  int entries = 0;
  // A range-for would throw where reading fails half way.
  for (std::filesystem::directory_iterator entry(parent_, unreadable), end;
       !unreadable && entry != end; entry.increment(unreadable)) {
    // An intruder could fill the parent with entries; the next look begins at its beginning again.
    if (++entries > kMostEntries) return;
    struct stat status;
    ExecutorUser user;
    // By owner, not only by name: anybody can make a folder of such a name.
    if (entry->path().filename().string().rfind(kPrefix, 0) == 0 &&
        lstat(entry->path().c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
        users.TakeThis(status.st_uid, &user)) {
      Remove(entry->path(), std::move(user));
    }
  }
}

void ExecutorFolders::OnChildExit() {
  for (auto it = removals_.begin(); it != removals_.end();) {
    std::string how;
    if (!it->second.process.Reap(&how)) {
      ++it;
      continue;
    }
    if (how != kEndedWell) {
      if (!it->second.is_late && it->second.tries < kRemovalTries && Start(it->first, it->second)) {
        ++it;
        continue;
      }
      LogWarning("executor: " + it->first + ", the folder of one that has ended, is left behind: " +
                 "its removal " + how + Left(it->second.user));
      lost_.push_back(std::move(it->second.user));
    }
    it = removals_.erase(it);
  }
}

}  // namespace gpuloom::scheduler
