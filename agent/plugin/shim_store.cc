// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/shim_store.h"

#include <sys/statvfs.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>

#include "agent/cat.h"
#include "agent/identity/state_file.h"
#include "agent/node/list_folder.h"
#include "agent/plugin/empty_library.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

// FNV-1a. Tells builds of one version apart; nobody but root writes here, so it need not resist
// forgery.
std::string ContentName(const std::string& content) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : content) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char text[17];
  std::snprintf(text, sizeof(text), "%016" PRIx64, hash);
  return text;
}

constexpr char kWhereTheyAre[] =
    "; set --shim to libgpuloom.so, --nvml to libgpuloom-nvml.so and --trace to gpuloom-trace";

}  // namespace

bool ShimStore::IsMountedNoexec(const std::string& directory) {
  struct statvfs file_system = {};
  return statvfs(directory.c_str(), &file_system) == 0 && (file_system.f_flag & ST_NOEXEC) != 0;
}

absl::StatusOr<std::string> ShimStore::Install(const std::string& path,
                                               const std::string& version) {
  const absl::StatusOr<std::string> content = ReadStateFile(path);
  if (!content.ok()) {
    return absl::NotFoundError(
        Cat("shim: ", std::string(content.status().message()), kWhereTheyAre));
  }
  // A wrong path is reported here, not by the loader of every program in a container.
  if (!content->starts_with("\177ELF")) {
    return absl::InvalidArgumentError(
        Cat("shim: ", path, " is neither a library nor a program", kWhereTheyAre));
  }
  const std::string file = Cat(fs::path(path).stem().string(), "-", version, "-",
                               ContentName(*content), fs::path(path).extension().string());
  // The libraries' folder always, because the empty library goes there with each.
  for (const std::string& directory : {libraries_, DirectoryOf(file)}) {
    if (absl::Status status = MakeStateDirectory(directory, 0755); !status.ok()) return status;
    if (forbids_exec_(directory)) {
      return absl::FailedPreconditionError(
          Cat("shim: ", directory,
              " is on a file system mounted noexec, from which containers could not load it; "
              "choose another --state-dir"));
    }
  }
  if (absl::Status status = Put(file, *content); !status.ok()) return status;
  if (absl::Status status = Put(kEmptyLibrary32, EmptyLibrary32()); !status.ok()) return status;
  return file;
}

absl::Status ShimStore::Put(const std::string& file, const std::string& content) const {
  const absl::StatusOr<std::string> present = ReadStateFile(PathOf(file));
  // A copy that was damaged is replaced; containers that have it mounted keep the damaged one.
  if (present.ok() && *present == content) return absl::OkStatus();
  return WriteStateFile(PathOf(file), content, 0755);
}

absl::Status ShimStore::Prune(const std::set<std::string>& keep) {
  for (const std::string& directory : {libraries_, programs_}) {
    std::error_code error;
    for (const fs::path& entry : ListFolder(directory, &error)) {
      const std::string file = entry.filename();
      // In no record, because every allocation has it.
      if (file == kEmptyLibrary32 || keep.contains(file)) continue;
      std::error_code remove_error;
      fs::remove(entry, remove_error);
      if (remove_error) error = remove_error;
    }
    // Without a program there is no folder of theirs.
    if (error && error != std::errc::no_such_file_or_directory) {
      return absl::InternalError(Cat("shim: ", directory, ": ", error.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace gpuloom
