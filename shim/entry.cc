// SPDX-License-Identifier: Apache-2.0
// The door: every exported name. Functions the shim does not support get their bodies here.
//
// No cuda.h in this file: the bodies are untyped.
#define GPULOOM_EXPORTS_BY_ROOM
#include <string.h>

#include <atomic>

#include "proto/libcuda/exports.inc"
#include "shim/process/log.h"
#include "shim/session/unsupported.h"

namespace gpuloom {
namespace {

constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED

std::atomic<uint32_t> unsupported_calls[kSymbolCount];

}  // namespace

int OnUnsupported(SymbolId id) {
  if (unsupported_calls[static_cast<size_t>(id)].fetch_add(1, std::memory_order_relaxed) == 0) {
    Log(LogLevel::kWarn, "%s is not supported (said once; it returns CUDA_ERROR_NOT_SUPPORTED)",
        SymbolOf(id).name);
    ReportUnsupported(SymbolOf(id).name, strlen(SymbolOf(id).name));
  }
  return kNotSupported;
}

}  // namespace gpuloom
