// SPDX-License-Identifier: Apache-2.0
// One allocation's folder under a random name, for as long as the command runs: its socket, in bin/
// a link to gpuloom-trace, and in lib/ links under NVIDIA's names to the libraries that the command
// gets. lib/ has the other names, too, that glibc may have for $LIB. Removed with what is in it. One thread.
#pragma once

#include <string>

namespace gpuloom::run {

struct TenantLibraries {
  std::string cuda;   // libgpuloom.so
  std::string nvml;   // libgpuloom-nvml.so
  std::string trace;  // gpuloom-trace, a program
};

class TenantFolder {
 public:
  TenantFolder() = default;
  ~TenantFolder();
  TenantFolder(const TenantFolder&) = delete;
  TenantFolder& operator=(const TenantFolder&) = delete;

  // Makes the folder and its content. False with a message; the destructor removes what was made.
  [[nodiscard]] bool Make(const std::string& state_dir, const TenantLibraries& libraries,
                          std::string* error);
  bool made() const { return !path_.empty(); }
  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }

  // What to write into LD_PRELOAD for `library`, before `theirs`. The path has a $LIB, which glibc's
  // loader replaces; to musl's it is a file that does not exist, which it ignores, as it should: the
  // shim needs glibc. The loader splits it at spaces, so where this folder's path has any it is
  // `library` itself.
  std::string Preload(const std::string& library, const char* theirs) const;
  // What to write into LD_LIBRARY_PATH, before `theirs`: a program that loads "libcuda.so" by name
  // finds there the file that is preloaded, and so the library that it already has.
  std::string LibraryPath(const char* theirs) const;
  // What to write into PATH, before `theirs`.
  std::string Path(const char* theirs) const;

 private:
  std::string name_;
  std::string path_;
};

// LD_LIBRARY_PATH without the folder of a `gpuloom run` that we were started by, whose libraries
// are for its own command: known by the socket's directory in the environment.
std::string WithoutOuterFolder(const char* library_path);

}  // namespace gpuloom::run
