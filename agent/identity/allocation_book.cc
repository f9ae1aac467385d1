// SPDX-License-Identifier: Apache-2.0
// Every public function first looks at the disk, under mutex_: by_name_ is a cache of the records,
// and a record is read again when its file is another one. So two agents that share the folder need
// no lock between them: a record is replaced whole, by a rename, and of two that bind the same one
// at once the later counts.
#include "agent/identity/allocation_book.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "agent/cat.h"
#include "agent/identity/allocation_record.h"
#include "agent/identity/state_file.h"
#include "agent/node/random_hex.h"
#include "agent/node/set_aside.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

// 128 bits, because a name that could be guessed would let one container's path lead to another's.
constexpr size_t kNameBytes = 16;
constexpr char kRecordSuffix[] = ".yaml";
constexpr char kSetAsideSuffix[] = ".bad";

// What we make. A record of any other name is not ours, and would become a path.
bool IsName(const std::string& text) {
  return text.size() == 2 * kNameBytes && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// The names of the folder's files. A listing that ends early has an error.
absl::StatusOr<std::vector<fs::path>> List(const std::string& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  // Not a range's loop, whose step would throw.
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    paths.push_back(entry->path());
  }
  if (error) return absl::InternalError(Cat("state: ", folder, ": ", error.message()));
  return paths;
}

// Whether there is certainly no such file.
bool IsGone(const std::string& path) {
  std::error_code error;
  return !fs::exists(path, error) && !error;
}

void SortOldestFirst(std::vector<Allocation>* allocations) {
  std::sort(allocations->begin(), allocations->end(), [](const Allocation& a, const Allocation& b) {
    return a.created_at != b.created_at ? a.created_at < b.created_at : a.name < b.name;
  });
}

}  // namespace

AllocationBook::AllocationBook(const std::string& state_directory)
    : allocations_(state_directory + "/allocations"), records_(state_directory + "/records") {}

absl::Status AllocationBook::Load(std::vector<std::string>* complaints) {
  const MutexLock lock(mutex_);
  for (const std::string& directory : {allocations_, records_}) {
    if (absl::Status status = MakeStateDirectory(directory, 0700); !status.ok()) return status;
  }
  if (absl::Status status = RefreshLocked(complaints); !status.ok()) return status;
  // A directory without a record is what a removal left that did not come to its end.
  // Listed first: removing while a directory is being read may skip entries.
  const absl::StatusOr<std::vector<fs::path>> directories = List(allocations_);
  if (!directories.ok()) return directories.status();
  for (const fs::path& directory : *directories) {
    const std::string name = directory.filename();
    // Asked now, not taken from the look above: another agent may have added it since.
    if (!IsGone(RecordOf(name)) || !IsGone(records_ + "/" + name + kSetAsideSuffix)) continue;
    // If it cannot be removed, the next start tries again; until then it does no harm.
    std::error_code ignored;
    fs::remove_all(directory, ignored);
  }
  return absl::OkStatus();
}

absl::Status AllocationBook::RefreshLocked(std::vector<std::string>* complaints) const {
  const absl::StatusOr<std::vector<fs::path>> records = List(records_);
  if (!records.ok()) return records.status();
  std::set<std::string> names;
  for (const fs::path& record : *records) {
    if (record.extension() == kRecordSuffix) names.insert(record.stem());
  }
  // What is known is looked at by its name, too: a listing may leave out a record that another
  // agent replaces meanwhile.
  for (const auto& [name, known] : by_name_) names.insert(name);
  names.insert(unread_.begin(), unread_.end());
  for (const std::string& name : names) RefreshOneLocked(name, complaints);
  return absl::OkStatus();
}

void AllocationBook::RefreshOneLocked(const std::string& name,
                                      std::vector<std::string>* complaints) const {
  const std::string path = RecordOf(name);
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    // Whatever else is wrong does not end an allocation: what is known of it stays.
    if (errno == ENOENT) {
      ForgetLocked(name);
    } else {
      NoteUnreadLocked(name, Cat("state: ", path, ": stat: ", strerror(errno)), complaints);
    }
    return;
  }
  // Taken before the content is read: if the file is replaced in between, the next look reads it
  // again. The change time, because a new file may be given the inode number of the old one.
  const FileId file = {info.st_ino,
                       int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec};
  const auto known = by_name_.find(name);
  if (known != by_name_.end() && known->second.read_from == file) {
    unread_.erase(name);
    return;
  }
  const absl::StatusOr<std::string> text = ReadStateFile(path);
  // Removed since the stat.
  if (absl::IsNotFound(text.status())) {
    ForgetLocked(name);
    return;
  }
  // The disk, or the process's limits, for a moment: only what was read can be damaged.
  if (!text.ok()) {
    NoteUnreadLocked(name, std::string(text.status().message()), complaints);
    return;
  }
  absl::StatusOr<Allocation> allocation = ParseRecord(*text);
  // A record that was copied under another name would give two allocations one directory.
  if (allocation.ok() && (allocation->name != name || !IsName(name))) {
    allocation = absl::DataLossError(Cat("names allocation ", allocation->name));
  }
  if (allocation.ok()) {
    by_name_[name] = {*std::move(allocation), file};
    unread_.erase(name);
  } else if (complaints != nullptr) {
    // If this fails, the record is tried again at the next start.
    const std::string aside = SetAside(path, Cat(records_, "/", name));
    ForgetLocked(name);
    complaints->push_back(Cat("state: ", path, ": ", std::string(allocation.status().message()),
                              "; ", aside, ": its container needs a restart of its pod"));
  } else {
    NoteUnreadLocked(name, "", nullptr);
  }
}

void AllocationBook::ForgetLocked(const std::string& name) const {
  by_name_.erase(name);
  unread_.erase(name);
}

void AllocationBook::NoteUnreadLocked(const std::string& name, const std::string& why,
                                      std::vector<std::string>* complaints) const {
  if (by_name_.contains(name)) return;
  unread_.insert(name);
  if (complaints != nullptr) complaints->push_back(Cat(why, "; kept, and read again later"));
}

absl::StatusOr<Allocation> AllocationBook::Add(const std::string& gpu_uuid,
                                               std::vector<std::string> device_ids,
                                               const LibraryFiles& library_files, Clock::Time now,
                                               uint64_t auto_slot_bytes, std::vector<int> slots) {
  Allocation allocation;
  allocation.name = RandomHex(kNameBytes);
  allocation.gpu_uuid = gpu_uuid;
  allocation.device_ids = std::move(device_ids);
  std::sort(allocation.device_ids.begin(), allocation.device_ids.end());
  allocation.slots = std::move(slots);
  allocation.library_files = library_files;
  allocation.auto_slot_bytes = auto_slot_bytes;
  allocation.created_at = now;

  const MutexLock lock(mutex_);
  // The record first: a directory without a record belongs to no allocation.
  if (absl::Status status = WriteRecord(allocation); !status.ok()) {
    // It is there if only the folder could not be synchronised.
    std::error_code ignored;
    fs::remove(RecordOf(allocation.name), ignored);
    return status;
  }
  if (absl::Status status = MakeStateDirectory(DirectoryOf(allocation.name), 0755); !status.ok()) {
    std::error_code ignored;
    fs::remove(RecordOf(allocation.name), ignored);
    return status;
  }
  // With no file's id, so that the next look reads back what was written.
  by_name_[allocation.name] = {allocation, {}};
  return allocation;
}

absl::Status AllocationBook::Bind(const std::string& name, const Binding& binding) {
  const MutexLock lock(mutex_);
  RefreshOneLocked(name, nullptr);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return absl::NotFoundError(Cat("state: no allocation ", name));
  const Allocation before = found->second.allocation;
  Allocation changed = before;
  changed.binding = binding;
  if (absl::Status status = WriteRecord(changed); !status.ok()) {
    // It says so all the same if only the folder could not be synchronised.
    RefreshOneLocked(name, nullptr);
    const auto now = by_name_.find(name);
    if (now != by_name_.end() && now->second.allocation.binding != before.binding) {
      (void)WriteRecord(before);  // which may fail no earlier: behind the rename
    }
    return status;
  }
  found->second = {std::move(changed), {}};
  return absl::OkStatus();
}

absl::Status AllocationBook::Remove(const std::string& name) {
  const MutexLock lock(mutex_);
  RefreshOneLocked(name, nullptr);
  if (!by_name_.contains(name)) return absl::OkStatus();
  std::error_code error;
  // In this order, because a crash in between leaves a record, from which it is tried again.
  // Containers that still have the directory mounted see it empty: its socket is gone.
  fs::remove_all(DirectoryOf(name), error);
  if (!error) fs::remove(RecordOf(name), error);
  if (error)
    return absl::InternalError(Cat("state: removing allocation ", name, ": ", error.message()));
  ForgetLocked(name);
  return absl::OkStatus();
}

std::optional<Allocation> AllocationBook::Find(const std::string& name) const {
  const MutexLock lock(mutex_);
  RefreshOneLocked(name, nullptr);
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  return found->second.allocation;
}

std::vector<Allocation> AllocationBook::FindByDevices(std::vector<std::string> device_ids) const {
  std::sort(device_ids.begin(), device_ids.end());
  std::vector<Allocation> found;
  for (Allocation& allocation : All()) {
    if (allocation.device_ids == device_ids) found.push_back(std::move(allocation));
  }
  return found;
}

std::vector<Allocation> AllocationBook::All() const {
  std::vector<Allocation> all;
  {
    const MutexLock lock(mutex_);
    (void)RefreshLocked(nullptr);  // a directory that cannot be read has not changed what is known
    for (const auto& [name, known] : by_name_) all.push_back(known.allocation);
  }
  SortOldestFirst(&all);
  return all;
}

bool AllocationBook::MayHave(const std::string& name) const {
  const MutexLock lock(mutex_);
  RefreshOneLocked(name, nullptr);
  return by_name_.contains(name) || unread_.contains(name);
}

std::vector<std::string> AllocationBook::Unread() const {
  const MutexLock lock(mutex_);
  (void)RefreshLocked(nullptr);
  return {unread_.begin(), unread_.end()};
}

std::string AllocationBook::DirectoryOf(const std::string& name) const {
  return allocations_ + "/" + name;
}

std::string AllocationBook::RecordOf(const std::string& name) const {
  return records_ + "/" + name + kRecordSuffix;
}

absl::Status AllocationBook::WriteRecord(const Allocation& allocation) const {
  return WriteStateFile(RecordOf(allocation.name), FormatRecord(allocation));
}

}  // namespace gpuloom
