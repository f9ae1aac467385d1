// SPDX-License-Identifier: Apache-2.0
#include "agent/state_lock.h"

#include <filesystem>

#include "agent/cat.h"
#include "agent/identity/state_file.h"
#include "agent/node/lock_file.h"
#include "proto/control/version.h"

namespace gpuloom {

absl::StatusOr<channel::UniqueFd> LockState(const std::string& directory, const std::string& name) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);  // the next line says what is wrong
  // The mode is set even if the directory was there: nobody but root may reach the sockets below
  // it.
  if (absl::Status status = MakeStateDirectory(directory, 0700); !status.ok()) return status;
  const std::string path = directory + "/" + name;
  LockFile lock = TakeLock(path, kVersion);
  if (lock.is_held_by_another) {
    const std::string pid = lock.holder > 0 ? Cat(lock.holder) : "unknown";
    return absl::AlreadyExistsError(
        Cat("state: another gpuloom-agent (pid ", pid, ") holds ", path,
            ": one agent per node; stop the other, or choose another --state-dir"));
  }
  if (!lock.fd.valid()) return absl::InternalError(Cat("state: ", lock.error));
  // The lock is ours, but not even its line could be written, so an agent could keep no record.
  // Closing the descriptor releases the lock.
  if (!lock.error.empty()) return absl::ResourceExhaustedError(Cat("state: ", lock.error));
  return std::move(lock.fd);
}

bool IsStateLocked(const std::string& directory, const std::string& name) {
  return IsLocked(directory + "/" + name);
}

}  // namespace gpuloom
