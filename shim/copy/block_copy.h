// SPDX-License-Identifier: Apache-2.0
// Copies of blocks, of two and three dimensions and of arrays: all such CUDA functions end up here.
// Safe from any thread.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/wire/graph_nodes.h"
#include "shim/copy/copy_side.h"
#include "shim/stream/stream.h"

namespace gpuloom {

// One side of a block copy, as far as a program may name it.
struct BlockEnd {
  using Kind = CopySide;
  Kind kind;
  uint32_t array;  // its id
  uint64_t address;
  uint64_t pitch_bytes;
  uint64_t rows;  // of a slice
  uint64_t x_bytes;
  uint64_t y;
  uint64_t z;
};

// A copy whose two sides have been checked against the program's memory and arrays.
struct BlockCopy {
  BlockEnd to;
  BlockEnd from;
  uint64_t width_bytes;
  uint64_t height;
  uint64_t depth;

  bool empty() const { return width_bytes == 0 || height == 0 || depth == 0; }
};

// CUDA's errors for invalid copies.
[[nodiscard]] CUresult JudgeCopy(const CUDA_MEMCPY3D& from, BlockCopy* to);
// Converts it to the wire's form. Neither side may be pageable.
wire::GraphCopy OnWire(const BlockCopy& copy);

[[nodiscard]] CUresult CopyBlock(const CUDA_MEMCPY3D& copy, CUstream handle,
                                 DefaultStream null_means, CopyTiming timing);

// Checks that a fill of rows may write its memory, and that its numbers are consistent.
[[nodiscard]] CUresult JudgeFill(const wire::GraphFill& fill, bool* pinned);

}  // namespace gpuloom
