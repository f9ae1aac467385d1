// SPDX-License-Identifier: Apache-2.0
// What a session holds under the ids that its tenant chose for kernels and references. Plain data, ring
// thread only; what is shared is held, never looked up again.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/executor/module/library_cache.h"
#include "proto/wire/commands.h"
#include "proto/wire/texture_reference_commands.h"

namespace gpuloom::executor {

struct Kernel {
  LibraryRef library;
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;  // null while it is looked up
  uint32_t param_bytes = 0;
  const std::vector<wire::KernelParam>* params = nullptr;  // of the library's facts
  // Launches may go together with others, when they stay within these.
  bool collects = false;
  uint32_t refused_known = 0;  // of Chains::refused(), when it was found that they do not refuse it
  uint32_t max_threads = 0;
  uint32_t max_dynamic_shared_bytes = 0;
};
struct Reference {
  LibraryRef library;  // null while it is looked up
  wire::ReferenceKind kind;
  size_t number = 0;  // of the library's
};

}  // namespace gpuloom::executor
