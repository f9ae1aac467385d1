// SPDX-License-Identifier: Apache-2.0
// Every allocation that may still be in use, in memory and on disk, across restarts of the agent, the kubelet and the
// node. Owns <state>/allocations/ (one directory for each allocation, mounted into its container) and <state>/records/
// (what is known about each, never mounted). Lives as long as the agent. Safe from any thread.
//
// The records on disk are authoritative, and every query checks whether they have changed: while one agent replaces
// another, both answer the kubelet, and each must know what the other was asked. Both may add and bind; only the
// agent in charge may call Remove.
//
// A change is on disk before it is visible: if it cannot be written, the call fails and nothing has changed. A record
// that is damaged at Load is set aside as NAME.bad (agent/node/set_aside.h) and reported; its directory is kept, because a running container may
// have it mounted. One that cannot be read, as when the process has no file descriptors left, stays, and is tried again
// by every later query: its allocation may be in use, and nobody may end it (MayHave).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/identity/allocation.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

class AllocationBook {
 public:
  explicit AllocationBook(const std::string& state_directory);

  // Makes the directories and reads the records. Appends to `complaints` one line per record that is set aside, or that
  // cannot be read.
  absl::Status Load(std::vector<std::string>* complaints);

  // A new allocation with a fresh random name and an empty directory of mode 0755 (the tenant's
  // user must reach the socket in it; the parent, 0700, keeps everybody else on the host away).
  absl::StatusOr<Allocation> Add(const std::string& gpu_uuid, std::vector<std::string> device_ids,
                                 const LibraryFiles& library_files, Clock::Time now,
                                 uint64_t auto_slot_bytes = 0, std::vector<int> slots = {});
  absl::Status Bind(const std::string& name, const Binding& binding);
  // Removes the directory, then the record. Unknown names are no error.
  absl::Status Remove(const std::string& name);

  std::optional<Allocation> Find(const std::string& name) const;
  // The allocations with exactly these device IDs, oldest first.
  std::vector<Allocation> FindByDevices(std::vector<std::string> device_ids) const;
  std::vector<Allocation> All() const;  // oldest first
  // Whether there is such an allocation, or a record of that name that cannot be read now.
  bool MayHave(const std::string& name) const;
  // The names of records that cannot be read now, and never could: whatever these allocations use must be kept.
  std::vector<std::string> Unread() const;

  std::string DirectoryOf(const std::string& name) const;

 private:
  // Distinguishes the versions of a record: each is a new file.
  struct FileId {
    uint64_t inode = 0;
    int64_t changed_ns = 0;
    bool operator==(const FileId&) const = default;
  };
  struct Known {
    Allocation allocation;
    FileId read_from;
  };

  std::string RecordOf(const std::string& name) const;
  absl::Status WriteRecord(const Allocation& allocation) const;
  // Take over what has changed on disk, for all records or for one. A record that is damaged or cannot be read stays as
  // it was known; with `complaints` given one that is damaged is set aside.
  absl::Status RefreshLocked(std::vector<std::string>* complaints) const GPULOOM_REQUIRES(mutex_);
  void RefreshOneLocked(const std::string& name, std::vector<std::string>* complaints) const
      GPULOOM_REQUIRES(mutex_);
  void ForgetLocked(const std::string& name) const GPULOOM_REQUIRES(mutex_);
  void NoteUnreadLocked(const std::string& name, const std::string& why,
                        std::vector<std::string>* complaints) const GPULOOM_REQUIRES(mutex_);

  const std::string allocations_;
  const std::string records_;
  mutable Mutex mutex_;
  mutable std::map<std::string, Known> by_name_ GPULOOM_GUARDED_BY(mutex_);
  mutable std::set<std::string> unread_ GPULOOM_GUARDED_BY(mutex_);  // none of by_name_
};

}  // namespace gpuloom
