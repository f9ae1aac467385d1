// SPDX-License-Identifier: Apache-2.0
// Copies of blocks as the driver takes them, for streams and for graphs.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/wire/graph_nodes.h"

namespace gpuloom::executor {

// `copy` has been judged; the arrays are those of its ends that are in one, null otherwise.
CUDA_MEMCPY3D DescribeBlock(const wire::GraphCopy& copy, CUarray to_array, CUarray from_array);

}  // namespace gpuloom::executor
