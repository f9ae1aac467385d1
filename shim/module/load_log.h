// SPDX-License-Identifier: Apache-2.0
// Prints the compiler log of an image that failed to load: few programs pass a buffer for it, and their own messages
// only name an error. Lives on the stack of one load, whose thread uses it; allocates no memory and takes no locks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/module/jit_options.h"

namespace gpuloom {

class LoadLog {
 public:
  // A longer log is cut: its first lines name the first error.
  static constexpr uint32_t kTextBytes = 900;

  void Set(const char* text, size_t bytes);
  // Writes one line to standard error, unless the program has passed a buffer for the log. Programs
  // try again and again: the same text is not written twice in a row.
  void Print(const JitOptions& jit) const;

 private:
  char text_[kTextBytes + 1] = {};
};

}  // namespace gpuloom
