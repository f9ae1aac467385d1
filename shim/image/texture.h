// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces: handles are the driver's own numbers, so what they were made of is kept in
// a list beside them, for the functions that ask. Safe from any thread.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/wire/array_commands.h"

namespace gpuloom {

// CUDA's rules for what a texture looks at, and how the wire says it.
[[nodiscard]] CUresult JudgeResource(const CUDA_RESOURCE_DESC& from,
                                     wire::TextureCreate::Request* to);
void SetSampler(const CUDA_TEXTURE_DESC& from, wire::TextureCreate::Request* to);

// For the reset of the context; nothing is in flight. Before the arrays.
void ReleaseAllViews();

}  // namespace gpuloom
