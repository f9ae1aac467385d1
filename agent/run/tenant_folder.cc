// SPDX-License-Identifier: Apache-2.0
#include "agent/run/tenant_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "agent/node/library_folder.h"
#include "agent/node/random_hex.h"
#include "proto/wire/session.h"

namespace gpuloom::run {
namespace {

constexpr char kLibraryFolder[] = "/lib";
constexpr char kProgramFolder[] = "/bin";
// All of these begin with a slash, to be appended to the folder's path.
constexpr char kTrace[] = "/gpuloom-trace";

// The same folder by the other names of $LIB: Red Hat's and SUSE's, Debian's. (Others say "lib".)
constexpr struct {
  const char* name;
  const char* target;
} kFurtherNames[] = {{"/lib64", "lib"}, {"/lib/" GPULOOM_LIBRARY_FOLDER, "."}};

// NVIDIA's names, with and without the number: programs ask for either.
constexpr struct {
  const char* name;
  std::string TenantLibraries::*target;
} kLinks[] = {
    {"/libcuda.so.1", &TenantLibraries::cuda},
    {"/libcuda.so", &TenantLibraries::cuda},
    {"/libnvidia-ml.so.1", &TenantLibraries::nvml},
    {"/libnvidia-ml.so", &TenantLibraries::nvml},
};

}  // namespace

// Removes files by name, not all that is there: files that others have put into it stay, and so does the folder.
TenantFolder::~TenantFolder() {
  if (path_.empty()) return;
  const std::string libraries = path_ + kLibraryFolder;
  for (const auto& link : kLinks) unlink((libraries + link.name).c_str());
  for (const auto& further : kFurtherNames) unlink((path_ + further.name).c_str());
  rmdir(libraries.c_str());
  const std::string programs = path_ + kProgramFolder;
  unlink((programs + kTrace).c_str());
  rmdir(programs.c_str());
  unlink((path_ + "/" + wire::kSocketName).c_str());
  rmdir(path_.c_str());
}

bool TenantFolder::Make(const std::string& state_dir, const TenantLibraries& libraries,
                        std::string* error) {
  // LD_LIBRARY_PATH is split at both.
  if (state_dir.find_first_of(":;") != std::string::npos) {
    *error = "the path " + state_dir +
             " would be split where libraries are looked for: choose a --state-dir without ':' "
             "and ';'";
    return false;
  }
  name_ = "run-" + RandomHex(8);
  const std::string path = state_dir + "/" + name_;
  if (mkdir(path.c_str(), 0700) != 0) {
    *error = "cannot make the folder " + path + ": " + strerror(errno);
    return false;
  }
  // From here on the destructor removes it, however far this gets.
  path_ = path;
  const std::string folder = path + kLibraryFolder;
  bool is_made = mkdir(folder.c_str(), 0700) == 0;
  for (const auto& link : kLinks) {
    is_made =
        is_made && symlink((libraries.*link.target).c_str(), (folder + link.name).c_str()) == 0;
  }
  for (const auto& further : kFurtherNames) {
    is_made = is_made && symlink(further.target, (path + further.name).c_str()) == 0;
  }
  const std::string programs = path + kProgramFolder;
  is_made = is_made && mkdir(programs.c_str(), 0700) == 0 &&
            symlink(libraries.trace.c_str(), (programs + kTrace).c_str()) == 0;
  if (!is_made) *error = "cannot make the links in " + path + ": " + strerror(errno);
  return is_made;
}

std::string TenantFolder::Preload(const std::string& library, const char* theirs) const {
  std::string preload = path_ + "/$LIB" + kLinks[0].name;
  if (path_.find_first_of(" \t\n") != std::string::npos) preload = library;
  if (theirs != nullptr && theirs[0] != '\0') preload += std::string(":") + theirs;
  return preload;
}

std::string TenantFolder::LibraryPath(const char* theirs) const {
  const std::string rest = WithoutOuterFolder(theirs);
  return path_ + kLibraryFolder + (rest.empty() ? "" : ":" + rest);
}

std::string TenantFolder::Path(const char* theirs) const {
  // As the C library has it where there is none.
  const std::string rest = theirs == nullptr ? "/bin:/usr/bin" : theirs;
  return path_ + kProgramFolder + (rest.empty() ? "" : ":" + rest);
}

std::string WithoutOuterFolder(const char* library_path) {
  if (library_path == nullptr) return {};
  const char* outer = getenv(wire::kSocketDirVariable);
  if (outer == nullptr) return library_path;
  const std::string folder = std::string(outer) + kLibraryFolder;
  std::string rest;
  std::stringstream entries(library_path);
  bool is_first = true;
  for (std::string entry; std::getline(entries, entry, ':');) {
    if (entry == folder) continue;
    rest += (is_first ? "" : ":") + entry;
    is_first = false;
  }
  return rest;
}

}  // namespace gpuloom::run
