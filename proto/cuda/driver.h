// SPDX-License-Identifier: Apache-2.0
// A libcuda loaded at run time by path: NVIDIA's, the software one, or the shim. One field per
// function of driver_api.def, with the type cuda.h declares: `driver.cuMemCreate(…)`. A function
// that the library lacks, or that is newer than its version (driver_version.h), stays null: check
// what is not in the oldest supported driver, CUDA 12.2, before calling it. tests/layering holds the
// node's programs to that.
//
// Plain value, copyable; the library is never unloaded (drivers do not survive dlclose), so the
// pointers stay good for the life of the process. Load is called once, from one thread; afterwards
// const use is safe from many. Not for the shim: it uses std::string.
#pragma once

#include <string>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

struct Driver {
// CUDA deprecates these functions, but programs still call them.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define CUDA_FN(name, room) decltype(&::name) name = nullptr;
#include "proto/cuda/driver_api.def"
#undef CUDA_FN
#pragma GCC diagnostic pop
};

// Returns false, with the loader's message naming the path, if the library cannot be opened or
// exports no cuInit; *driver is then unchanged. The only CUDA call that it makes is cuDriverGetVersion, which needs no
// cuInit, and not even that if the caller knows the version.
[[nodiscard]] bool Load(const char* path, Driver* driver, std::string* error,
                        int known_version = 0);

}  // namespace gpuloom
