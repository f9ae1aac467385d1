// SPDX-License-Identifier: Apache-2.0
// How the wire says what a texture does with what it looks at.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/wire/array_commands.h"

namespace gpuloom::executor {

// Nothing of it is judged: a driver does that, and can read no memory by it.
CUDA_TEXTURE_DESC SamplerOf(const wire::TextureCreate::Request& request);

}  // namespace gpuloom::executor
