// SPDX-License-Identifier: Apache-2.0
// The address of an exported function inside this very library, for cuGetProcAddress. Defined by exports.inc. Pure.
#pragma once

#include "proto/cuda/driver_api.h"

namespace gpuloom {

// Never null; safe from any thread.
[[nodiscard]] void* ExportedAddress(SymbolId id);

}  // namespace gpuloom
