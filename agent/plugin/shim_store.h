// SPDX-License-Identifier: Apache-2.0
// What containers have mounted: <state>/shim/libgpuloom-<version>-<content>.so, which they see as
// libcuda, libgpuloom-nvml-<version>-<content>.so, which they see as NVML, and the program
// <state>/programs/gpuloom-trace-<version>-<content>, in a folder of its own: beside the libraries, an agent of 0.2.0
// deletes what it does not know, and a container could not start again after a way back to it.
// A new agent adds its own version; an old one stays while any allocation was given it, so that a
// restarted container finds the file it was promised. Beside them lies the empty library of 32-bit
// programs, always. Safe from any thread.
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

  // Of the state directory.
  static constexpr char kLibraries[] = "/shim";
  static constexpr char kPrograms[] = "/programs";

  static bool IsMountedNoexec(const std::string& directory);

  // Beside the libraries once one has been installed; see empty_library.h.
  static constexpr char kEmptyLibrary32[] = "empty-i386.so";

  // Copies the library or program in unless the same content is there already, and returns its file name.
  absl::StatusOr<std::string> Install(const std::string& path, const std::string& version);
  // Deletes what is neither in `keep` nor the empty library.
  absl::Status Prune(const std::set<std::string>& keep);
  std::string PathOf(const std::string& file) const { return DirectoryOf(file) + "/" + file; }

 private:
  const std::string& DirectoryOf(const std::string& file) const {
    return file.ends_with(".so") ? libraries_ : programs_;
  }
  // Unless the same content is there already, so that its inode stays.
  absl::Status Put(const std::string& file, const std::string& content) const;

  const std::string libraries_;
  const std::string programs_;
  const ForbidsExec forbids_exec_;
};

}  // namespace gpuloom
