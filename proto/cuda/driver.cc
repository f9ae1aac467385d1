// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/driver.h"

#include <dlfcn.h>

#include <climits>

#include "proto/cuda/driver_version.h"

namespace gpuloom {
namespace {

// A library that does not say its version has all that it exports.
int VersionOf(void* library) {
  using Ask = decltype(&::cuDriverGetVersion);
  const auto ask = reinterpret_cast<Ask>(dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  return ask != nullptr && ask(&version) == CUDA_SUCCESS ? version : INT_MAX;
}

}  // namespace

bool Load(const char* path, Driver* driver, std::string* error, int known_version) {
  // RTLD_LOCAL: a second libcuda in the process must not be bound to this one's names.
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    *error = std::string("cuda: cannot load ") + path + ": " +
             (reason != nullptr ? reason : "unknown reason");
    return false;
  }
  const int version = known_version != 0 ? known_version : VersionOf(library);
  // Drivers also export functions that their version does not have yet, in forms that may still change.
  const auto find = [&](SymbolId id, const char* name) {
    return FirstVersion(id) <= version ? dlsym(library, name) : nullptr;
  };
  Driver loaded;
#define CUDA_FN(name, room) \
  loaded.name = reinterpret_cast<decltype(loaded.name)>(find(SymbolId::name, #name));
#include "proto/cuda/driver_api.def"
#undef CUDA_FN
  if (loaded.cuInit == nullptr) {
    *error = std::string("cuda: ") + path + " exports no cuInit: it is not a CUDA driver library";
    return false;
  }
  *driver = loaded;
  return true;
}

}  // namespace gpuloom
