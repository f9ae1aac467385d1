// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces: handles are the driver's own numbers, so what they were made from is kept
// in a separate list, for the query functions. Safe from any thread.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/wire/array_commands.h"

namespace gpuloom {

// Applies CUDA's rules to the resource of a texture, and converts it to its form on the wire.
[[nodiscard]] CUresult JudgeResource(const CUDA_RESOURCE_DESC& from,
                                     wire::TextureCreate::Request* to);

// For a reset of the context; nothing is in flight. Before the arrays.
void ReleaseAllViews();

}  // namespace gpuloom
