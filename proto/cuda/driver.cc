// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/driver.h"

#include <dlfcn.h>

namespace gpuloom {

bool Load(const char* path, Driver* driver, std::string* error) {
  // RTLD_LOCAL: a second libcuda in the process must not be bound to this one's names.
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    *error = std::string("cuda: cannot load ") + path + ": " +
             (reason != nullptr ? reason : "unknown reason");
    return false;
  }
  Driver loaded;
#define CUDA_FN(name, room) \
  loaded.name = reinterpret_cast<decltype(loaded.name)>(dlsym(library, #name));
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
