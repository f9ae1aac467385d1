// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: which exported function a program means by a name, a CUDA version and its kind
// of default stream. One name has several ABIs over time (cuCtxGetDevice takes one argument
// before 13.0 and two since), so the version decides. Constant tables only: no allocation, no
// start-up code, safe from any thread and in a tenant's process.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/cuda/driver_api.h"

namespace gpuloom {

enum class ProcAddressStatus : uint8_t { kFound, kNotFound, kVersionNotSufficient };

struct ProcAddress {
  ProcAddressStatus status;
  SymbolId symbol;  // only with kFound
};

// The newest ABI of `name` that is not newer than `cuda_version` (11.4 is 11040). With `per_thread`
// the _ptds or _ptsz form where there is one, else the plain one. `name` is the base name as CUDA
// wants it: cuMemAlloc, never cuMemAlloc_v2; empty and unknown names are kNotFound, as are those that
// are newer than `driver_version`.
[[nodiscard]] ProcAddress FindProcAddress(const char* name, int cuda_version, bool per_thread,
                                          int driver_version = CUDA_VERSION);

// Whether the answer differs between the supported drivers.
[[nodiscard]] bool DependsOnDriver(const char* name);

// Whether the name belongs to CUDA's interop with OpenGL, EGL and VDPAU, which has headers of its own. cudart looks
// all of them up in every program; hardly any program calls them.
[[nodiscard]] bool IsGraphicsInterop(const char* name);

// The whole of cuGetProcAddress_v2 over this library's own exports (ExportedAddress, see exports.inc), as a driver of
// `driver_version` answers it. *function is null if there is none. That is NOT_FOUND only if `status` is null, as in
// cuGetProcAddress; otherwise it is not an error, and *status has the reason, as in NVIDIA's driver.
[[nodiscard]] CUresult AnswerGetProcAddress(const char* name, void** function, int cuda_version,
                                            cuuint64_t flags,
                                            CUdriverProcAddressQueryResult* status,
                                            int driver_version = CUDA_VERSION);

}  // namespace gpuloom
