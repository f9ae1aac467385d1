// SPDX-License-Identifier: Apache-2.0
// Copies between pageable memory and the device inside a graph: the device reads and writes a part of the arena that
// belongs to the graph, and a host function of ours copies between it and the program's memory when the graph runs, as
// CUDA promises.
//
// A StagedCopy owns its staging memory; the graph's step owns the StagedCopy and frees it. RunStaged runs on the
// thread of host functions; the rest is safe from any thread. Failures are CUDA's codes; OUT_OF_MEMORY also beyond
// the session's limit of pinned memory.
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

// Finds out the kind of memory on each side of the copy. INVALID_VALUE for addresses in our ranges that the program
// does not own.
[[nodiscard]] CUresult ReadBox(const CUDA_MEMCPY3D& copy, Box* box);

// The data of a staged copy's host function; malloc'ed. The formerly pageable end is the staging
// memory.
struct StagedCopy {
  Box box;           // pageable side and staging side, as the host function copies it
  uint64_t staging;  // pinned memory of the graph's own
};

// Replaces the pageable end of *box by staging memory; *copy is what the host function needs, which
// runs before the device's copy if `from` was pageable, after it if `to` was. If both are pageable,
// the host function does it alone, without staging.
[[nodiscard]] CUresult MakeStaged(Box* box, StagedCopy** copy);
// The host function.
void RunStaged(void* staged_copy);
// Call it when nothing can run the copy.
void FreeStaged(StagedCopy* copy);

}  // namespace gpuloom
