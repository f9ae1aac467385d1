// SPDX-License-Identifier: Apache-2.0
// The libraries that containers have mounted: <state>/shim/libgpuloom-<version>-<content>.so, which
// they see as libcuda, and libgpuloom-nvml-<version>-<content>.so, which they see as NVML.
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
      : directory_(state_directory + "/shim"), forbids_exec_(forbids_exec) {}

  static bool IsMountedNoexec(const std::string& directory);

  // Beside the libraries once one has been installed; see empty_library.h.
  static constexpr char kEmptyLibrary32[] = "empty-i386.so";

  // Copies the library in unless the same content is there already, and returns its file name.
  absl::StatusOr<std::string> Install(const std::string& library_path, const std::string& version);
  // Deletes what is neither in `keep` nor the empty library.
  absl::Status Prune(const std::set<std::string>& keep);
  std::string PathOf(const std::string& file) const { return directory_ + "/" + file; }

 private:
  // Unless the same content is there already, so that its inode stays.
  absl::Status Put(const std::string& file, const std::string& content) const;

  const std::string directory_;
  const ForbidsExec forbids_exec_;
};

}  // namespace gpuloom
