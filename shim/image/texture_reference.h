// SPDX-License-Identifier: Apache-2.0
// Texture and surface references (proto/cuda/texture_reference.h has their functions). What one is bound
// to is kept here, and told to the executor whenever it changes, in the ring: launches behind it see
// it (docs/design/texture-references.md). Safe from any thread.
#pragma once

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

struct Library;

// What was bound to the array is bound to nothing. To be called when its handle is invalid and before
// the executor is told. `array` is a CUarray or CUmipmappedArray.
void UnbindArray(const void* array);

// The library goes, or is loaded anew when it is used again: its references' handles are invalid. To be
// called when the executor has unloaded it.
void ReleaseReferences(const Library* library);

// For the reset of the context, behind the libraries: those of no library go, and those of libraries that
// stay loaded are bound to nothing.
void ResetReferences();

}  // namespace gpuloom
