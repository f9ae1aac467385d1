// SPDX-License-Identifier: Apache-2.0
// Returns text the way NVML does. Pure; safe from any thread.
#pragma once

#include <string.h>

#include "shim/nvml/nvml_api.h"

namespace gpuloom::nvml {

// Copies the whole text or nothing: kInsufficientSize if it does not fit.
[[nodiscard]] inline Return CopyText(char* out, unsigned out_bytes, const char* text) {
  if (out == nullptr) return kInvalidArgument;
  const size_t size = strlen(text) + 1;
  if (out_bytes < size) return kInsufficientSize;
  memcpy(out, text, size);
  return kSuccess;
}

}  // namespace gpuloom::nvml
