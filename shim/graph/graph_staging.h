// SPDX-License-Identifier: Apache-2.0
// Copies between pageable memory and the device inside a graph: the device reads and writes a piece
// of the arena that belongs to the graph, and a host function of ours moves the bytes between it
// and the program's memory when the graph runs, as CUDA promises.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/node.h"

namespace gpuloom {

// One end of a copy, as plain addresses.
struct BoxEnd {
  CUarray array;  // null for linear memory
  bool pageable;
  bool host;
  uint64_t address;        // of the box's first byte; 0 for arrays
  uint64_t pitch_bytes;    // from row to row
  uint64_t rows;           // from slice to slice, in rows
  uint64_t x_bytes, y, z;  // in an array
};

struct Box {
  BoxEnd to;
  BoxEnd from;
  uint64_t width_bytes;
  uint64_t height;
  uint64_t depth;
};

// Which memory each side of the node is. INVALID_VALUE for addresses in our ranges that the program
// does not own.
[[nodiscard]] CUresult ReadBox(const CUDA_MEMCPY3D& copy, Box* box);

// What a staged copy's host function works on; malloc'ed. The end that was pageable has become the
// staging memory.
struct StagedCopy {
  Box box;           // pageable side and staging side, as the host function copies it
  uint64_t staging;  // pinned memory of the graph's own
};

// Turns the pageable end of *box into staging memory; *copy is what the host function needs, before
// the device's copy when `from` was pageable, behind it when `to` was. Both pageable: the host
// function alone does it, and there is no staging.
[[nodiscard]] CUresult MakeStaged(Box* box, StagedCopy** copy);
// The host function.
void RunStaged(void* staged_copy);
// Nothing runs it any more.
void FreeStaged(StagedCopy* copy);

}  // namespace gpuloom
