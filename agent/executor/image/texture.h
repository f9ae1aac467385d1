// SPDX-License-Identifier: Apache-2.0
// Converts the wire's description of how a texture samples.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/wire/array_commands.h"

namespace gpuloom::executor {

// Nothing is validated here: the driver does that, and no value lets it read other memory.
CUDA_TEXTURE_DESC SamplerOf(const wire::TextureCreate::Request& request);

}  // namespace gpuloom::executor
