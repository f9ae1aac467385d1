// SPDX-License-Identifier: Apache-2.0
// What a session keeps under its tenant's ids for kernels and references. Plain data, ring thread
// only; shared objects are held, never looked up again.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/executor/module/library_cache.h"
#include "proto/wire/kernel_commands.h"
#include "proto/wire/texture_reference_commands.h"

namespace gpuloom::executor {

struct Kernel {
  LibraryRef library;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;  // null during the look-up
  uint32_t param_bytes = 0;
  const std::vector<wire::KernelParam>* params = nullptr;  // owned by the library's facts
  // Launches may be grouped with others, if they stay within these limits.
  bool collects = false;
  uint32_t refused_known = 0;  // value of Chains::refused() when it was last found not refused
  uint32_t max_threads = 0;
  uint32_t max_dynamic_shared_bytes = 0;
};
struct Reference {
  LibraryRef library;  // null during the look-up
  wire::ReferenceKind kind;
  size_t number = 0;  // in the library
};

}  // namespace gpuloom::executor
