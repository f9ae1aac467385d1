#include "agent/state_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "agent/cat.h"
#include "agent/identity/state_file.h"

namespace gpuloom {

absl::StatusOr<channel::UniqueFd> LockState(const std::string& directory, const std::string& name) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);  // the next line says what is wrong
  if (absl::Status status = MakeStateDirectory(directory, 0700); !status.ok()) return status;
  const std::string path = directory + "/" + name;
  channel::UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return absl::InternalError(Cat("state: ", path, ": ", strerror(errno)));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    char pid[32] = {};
    const ssize_t n = pread(fd.get(), pid, sizeof(pid) - 1, 0);
    return absl::AlreadyExistsError(
        Cat("state: another gpuloom-agent (pid ", n > 0 ? pid : "unknown", ") holds ", path,
            ": one agent per node; stop the other, or choose another --state-dir"));
  }
  const std::string pid = Cat(getpid());
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return absl::ResourceExhaustedError(Cat("state: ", path, ": ", strerror(errno)));
  }
  return fd;
}

bool IsStateLocked(const std::string& directory, const std::string& name) {
  const channel::UniqueFd fd(open((directory + "/" + name).c_str(), O_RDWR | O_CLOEXEC));
  return fd.valid() && flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace gpuloom
