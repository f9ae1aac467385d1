// SPDX-License-Identifier: Apache-2.0
// Bodies for every libcuda function that this driver does not define, and the addresses of all of
// them.
#include <atomic>
#include <string>

#include "agent/softgpu/driver/print_line.h"
#include "proto/libcuda/exports.inc"

namespace gpuloom {

// Called by every body; a name is said once in a process, however often it is called.
int OnUnsupported(SymbolId id) {
  static std::atomic<bool> said[kSymbolCount];
  constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED; cuda.h cannot be included here
  if (!said[static_cast<size_t>(id)].exchange(true)) {
    softgpu::PrintLine(std::string(SymbolOf(id).name) + " is not supported");
  }
  return kNotSupported;
}

}  // namespace gpuloom
