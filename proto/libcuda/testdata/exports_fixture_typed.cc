// SPDX-License-Identifier: Apache-2.0
// The typed half: two real definitions, which must win over the untyped bodies.
#include <cstdlib>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/exports.h"

extern "C" CUresult cuDriverGetVersion(int* version) {
  const char* wanted = std::getenv("GPULOOM_FIXTURE_DRIVER_VERSION");
  *version = wanted != nullptr ? std::atoi(wanted) : 94711;
  return CUDA_SUCCESS;
}

extern "C" CUresult cuGetProcAddress(const char* name, void** address, int, cuuint64_t) {
  gpuloom::SymbolId id{};
  if (!gpuloom::FindSymbol(name, &id)) return CUDA_ERROR_NOT_FOUND;
  *address = gpuloom::ExportedAddress(id);
  return CUDA_SUCCESS;
}
