// SPDX-License-Identifier: Apache-2.0
// Translates block copies for the driver, for streams and for graphs. Pure.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/wire/graph_nodes.h"

namespace gpuloom::executor {

// `copy` has been validated; each array is null if that end of the copy is not an array.
CUDA_MEMCPY3D DescribeBlock(const wire::GraphCopy& copy, CUarray to_array, CUarray from_array);

}  // namespace gpuloom::executor
