// SPDX-License-Identifier: Apache-2.0
// Text as NVML returns it.
#pragma once

#include <string.h>

#include "shim/nvml/nvml_api.h"

namespace gpuloom::nvml {

// The whole text or nothing.
[[nodiscard]] inline Return CopyText(char* out, unsigned out_bytes, const char* text) {
  if (out == nullptr) return kInvalidArgument;
  const size_t size = strlen(text) + 1;
  if (out_bytes < size) return kInsufficientSize;
  memcpy(out, text, size);
  return kSuccess;
}

}  // namespace gpuloom::nvml
