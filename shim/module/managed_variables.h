// SPDX-License-Identifier: Apache-2.0
// The `__managed__` variables of a library: one piece of memory, which the executor's driver uses as the variables'
// memory, so that program and kernels reach them at one address (docs/design/managed-variables.md). It is what
// cuMemAllocManaged would give for this size: a part of the arena, or memory that migrates. Safe from any thread, as
// library.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/module/library.h"
#include "shim/session/session.h"

namespace gpuloom {

// Gives the variables of a library that the executor is loading their place, and has it load the code for there, with
// the initial values. A reloaded library keeps its place. `log` as in library_load.h; may be null. If it fails they have
// no place.
[[nodiscard]] CUresult PlaceManaged(Library* library, uint64_t size_bytes, ReplyPayload* log);
// The device must have finished with them. Does nothing without a place.
void ReleaseManaged(Library* library);

// NOT_FOUND if the library has none of that name. `address` and `size` may be null.
[[nodiscard]] CUresult FindManagedVariable(Library* library, const char* name, CUdeviceptr* address,
                                           size_t* size);

}  // namespace gpuloom
