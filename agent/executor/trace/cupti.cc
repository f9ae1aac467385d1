// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/trace/cupti.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

namespace gpuloom::executor {
namespace {

// The version number of the CUPTI in CUDA 11.6.
constexpr uint32_t kOldestVersion = 17;

// The newest first. Without a version only packages for development have the name.
constexpr const char* kNames[] = {"libcupti.so.13", "libcupti.so.12"};
constexpr const char* kFolders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64",
                                    "/usr/local/cuda/lib"};

// In the order in which they are tried: paths that exist, then plain names for the loader. A CUPTI
// beside the driver belongs to it most likely.
std::vector<std::string> CandidatePaths(const void* driver) {
  std::vector<std::string> folders;
  Dl_info library{};
  if (driver != nullptr && dladdr(driver, &library) != 0) {
    const std::filesystem::path path = library.dli_fname;
    if (path.is_absolute()) folders.push_back(path.parent_path());
  }
  folders.insert(folders.end(), std::begin(kFolders), std::end(kFolders));
  std::vector<std::string> places;
  for (const char* name : kNames) {
    for (const std::string& folder : folders) {
      std::error_code missing;
      const std::string place = folder + "/" + name;
      if (std::filesystem::exists(place, missing)) places.push_back(place);
    }
  }
  places.insert(places.end(), std::begin(kNames), std::end(kNames));
  return places;
}

// For logs and `gpuloom-executor --version`: the link's target, whose name has the full version.
std::string Describe(const Cupti& cupti, uint32_t version) {
  // The loader's, where it was loaded by its name.
  Dl_info library{};
  std::filesystem::path path = cupti.path;
  if (dladdr(reinterpret_cast<const void*>(cupti.cuptiGetVersion), &library) != 0) {
    path = library.dli_fname;
  }
  std::error_code unknown;
  const std::filesystem::path file = std::filesystem::canonical(path, unknown);
  return (unknown ? path : file).filename().string() + ", API " + std::to_string(version) + ", " +
         path.string();
}

// A library that does not serve stays loaded: closing one whose constructors have run is a risk for
// nothing.
bool LoadFrom(const std::string& path, Cupti* cupti, std::string* why) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    *why = "cupti: cannot load " + path + ": " + (reason != nullptr ? reason : "unknown reason");
    return false;
  }
  Cupti loaded;
  bool has_all = true;
  const auto take = [&]<typename F>(const char* name, F* function) {
    *function = reinterpret_cast<F>(dlsym(library, name));
    has_all = has_all && *function != nullptr;
  };
#define TAKE(name) take(#name, &loaded.name)
  TAKE(cuptiGetVersion);
  TAKE(cuptiGetResultString);
  TAKE(cuptiActivityRegisterTimestampCallback);
  TAKE(cuptiActivityRegisterCallbacks);
  TAKE(cuptiActivityEnable);
  TAKE(cuptiActivityDisable);
  TAKE(cuptiActivityFlushAll);
  TAKE(cuptiActivityGetNextRecord);
  TAKE(cuptiActivityGetNumDroppedRecords);
  TAKE(cuptiGetStreamIdEx);
#undef TAKE
  uint32_t version = 0;
  if (!has_all || loaded.cuptiGetVersion(&version) != kCuptiSuccess || version < kOldestVersion) {
    *why = "cupti: " + path + " is too old: CUDA 11.6's or a newer one is needed";
    return false;
  }
  loaded.path = path;
  loaded.description = Describe(loaded, version);
  *cupti = loaded;
  return true;
}

}  // namespace

// An explicit path that does not serve is an error, and nothing else is tried.
bool LoadCupti(const std::string& setting, const void* driver, Cupti* cupti, std::string* why) {
  if (setting == "off") {
    *why = "cupti: switched off by GPULOOM_EXECUTOR_CUPTI";
    return false;
  }
  if (!setting.empty()) return LoadFrom(setting, cupti, why);
  // What exists and cannot be used is worth knowing; the last ones are names only.
  std::string first;
  for (const std::string& place : CandidatePaths(driver)) {
    if (LoadFrom(place, cupti, why)) return true;
    if (first.empty() && place[0] == '/') first = *why;
  }
  *why = first.empty() ? "cupti: libcupti.so is not found beside the driver, in /usr/local/cuda or "
                         "by the loader: name it in GPULOOM_EXECUTOR_CUPTI"
                       : first;
  return false;
}

}  // namespace gpuloom::executor
