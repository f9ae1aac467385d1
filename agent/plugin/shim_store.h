// SPDX-License-Identifier: Apache-2.0
// Owns the files that containers have mounted: <state>/shim/libgpuloom-<version>-<content>.so, which they see as
// libcuda, libgpuloom-nvml-<version>-<content>.so, which they see as NVML, and the program
// <state>/programs/gpuloom-trace-<version>-<content>. The program has a folder of its own because an agent of 0.2.0
// deletes unknown files beside the libraries, so that after a rollback to it a container could not start again.
//
// A new agent adds its own version. An older version stays while any allocation uses it, so that a restarted
// container finds the file it was given. Beside the libraries there is always the empty library for 32-bit programs.
// Safe from any thread. Failures name the path and the reason.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuloom {

class ShimStore {
 public:
  // `forbids_exec` tells whether a directory lies on a file system mounted noexec; a seam for tests.
  using ForbidsExec = bool (*)(const std::string& directory);
  explicit ShimStore(const std::string& state_directory, ForbidsExec forbids_exec = IsMountedNoexec)
      : libraries_(state_directory + kLibraries),
        programs_(state_directory + kPrograms),
        forbids_exec_(forbids_exec) {}

  // Folders in the state directory.
  static constexpr char kLibraries[] = "/shim";
  static constexpr char kPrograms[] = "/programs";

  static bool IsMountedNoexec(const std::string& directory);

  // Lies beside the libraries once one has been installed; see empty_library.h.
  static constexpr char kEmptyLibrary32[] = "empty-i386.so";

  // Copies the library or program into the store unless it has the same content already; returns its file name there.
  absl::StatusOr<std::string> Install(const std::string& path, const std::string& version);
  // Deletes all files except those in `keep` and the empty library.
  absl::Status Prune(const std::set<std::string>& keep);
  std::string PathOf(const std::string& file) const { return DirectoryOf(file) + "/" + file; }

 private:
  const std::string& DirectoryOf(const std::string& file) const {
    return file.ends_with(".so") ? libraries_ : programs_;
  }
  // Writes the file, unless it has the same content already: then its inode stays.
  absl::Status Put(const std::string& file, const std::string& content) const;

  const std::string libraries_;
  const std::string programs_;
  const ForbidsExec forbids_exec_;
};

}  // namespace gpuloom
