// SPDX-License-Identifier: Apache-2.0
// Texture and surface references (proto/cuda/texture_reference.h has their functions). Their bindings are kept here
// and sent to the executor through the ring whenever they change: later launches see them
// (docs/design/texture-references.md). Safe from any thread.
#pragma once

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

struct Library;

// Unbinds the array everywhere. Called once its handle is invalid and before ArrayDestroy is sent. `array` is a
// CUarray or CUmipmappedArray.
void UnbindArray(const void* array);

// The library is unloaded, or will be reloaded when it is used again: its references' handles become invalid. Called
// after the executor has unloaded it.
void ReleaseReferences(Library* library);

// For a reset of the context, after the libraries: references of no library are destroyed, those of libraries that
// stay loaded are unbound.
void ResetReferences();

}  // namespace gpuloom
