#include "agent/scheduler/state_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/scheduler/log.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

StateLock LockState(const std::string& state_dir) {
  StateLock lock;
  if (mkdir(state_dir.c_str(), 0700) != 0 && errno != EEXIST) {
    lock.error = "cannot make the state folder " + state_dir + ": " + strerror(errno);
    return lock;
  }
  const std::string path = state_dir + "/" + control::kLockName;
  channel::UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    lock.error = "cannot open the lock file " + path + ": " + strerror(errno);
    return lock;
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    lock.is_held_by_another = true;
    lock.error = "another scheduler holds " + path + ": one runs per GPU; it is reached through " +
                 state_dir + "/" + control::kControlSocketName;
    return lock;
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(fd.get(), 0) != 0 ||
      write(fd.get(), pid.data(), pid.size()) != static_cast<ssize_t>(pid.size())) {
    LogWarning("cannot write my process id to " + path + ": " + strerror(errno));
  }
  lock.fd = std::move(fd);
  return lock;
}

}  // namespace gpuloom::scheduler
