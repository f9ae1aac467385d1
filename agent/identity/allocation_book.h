// SPDX-License-Identifier: Apache-2.0
// Every allocation that may still be in use, in memory and on disk, across restarts of the agent,
// the kubelet and the node. Owns <state>/allocations/ (one directory each, mounted into the
// container) and <state>/records/ (what is known of it, never mounted). Lives as long as the agent.
// Safe from any thread.
//
// The records on disk are the truth, and every question looks whether they have changed: while one
// agent replaces another, both answer the kubelet, and each must know what the other was asked. Both
// may add and bind; Remove is for the one in charge.
//
// A change is on disk before it is visible: when the disk refuses, the call fails and nothing has
// changed. A record that cannot be read at Load is set aside as NAME.bad, and told: its directory
// is kept, because a running container may have it mounted.
#pragma once

#include <map>
#include <optional>
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

  // Makes the directories, reads the records. `complaints` gets one line per record set aside.
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
  // Those with exactly these IDs, oldest first.
  std::vector<Allocation> FindByDevices(std::vector<std::string> device_ids) const;
  std::vector<Allocation> All() const;  // oldest first

  std::string DirectoryOf(const std::string& name) const;

 private:
  // Tells one content of a record from the next: each is a new file.
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
  // Take over what has changed on disk, of all records or of one. What cannot be read is left as it
  // is known, unless there are `complaints`: then it is set aside.
  absl::Status LookLocked(std::vector<std::string>* complaints) const GPULOOM_REQUIRES(mutex_);
  void LookAtLocked(const std::string& name, std::vector<std::string>* complaints) const
      GPULOOM_REQUIRES(mutex_);

  const std::string allocations_;
  const std::string records_;
  mutable Mutex mutex_;
  mutable std::map<std::string, Known> by_name_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom
