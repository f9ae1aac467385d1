// SPDX-License-Identifier: Apache-2.0
// The `__managed__` variables of a library: one part of the arena, which the executor's driver uses
// as the variables' memory, so that program and kernels reach them at one address
// (docs/design/managed-variables.md). Safe from any thread, as library.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/module/library.h"

namespace gpuloom {

// Gives the library's variables their place, zeroed. A reloaded library keeps it.
[[nodiscard]] CUresult ReserveManaged(Library* library, uint64_t size_bytes);
// The device must have finished with them. Does nothing without a place.
void ReleaseManaged(Library* library);

// NOT_FOUND if the library has none of that name. `address` and `size` may be null.
[[nodiscard]] CUresult FindManagedVariable(Library* library, const char* name, CUdeviceptr* address,
                                           size_t* size);

}  // namespace gpuloom
