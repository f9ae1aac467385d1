// SPDX-License-Identifier: Apache-2.0
// Arrays by handle: their properties are kept here, so queries need no message. To the executor arrays and their levels
// are ids. One table per process owns them. Safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

struct Array {
  enum class Kind : uint32_t { kArray, kMipmap, kLevel };
  std::atomic<uint32_t> alive;
  Kind kind;
  CUDA_ARRAY3D_DESCRIPTOR descriptor;  // of a level: the level's own
  uint32_t levels;
  uint32_t whole;       // kLevel: id of the mipmap
  uint32_t level;       // kLevel
  uint32_t next_level;  // of the mipmap's levels that have handles: next one's id; 0: last
};

// An array or a level; nullptr if the handle is neither.
const Array* FindArray(CUarray handle, uint32_t* id);
const Array* FindMipmap(CUmipmappedArray handle, uint32_t* id);

// 0 for a format that we do not support.
uint32_t ElementBytes(const CUDA_ARRAY3D_DESCRIPTOR& descriptor);
// In rows and slices, as copies see an array: layers and faces are slices.
struct ArrayShape {
  uint64_t width_bytes;
  uint64_t height;
  uint64_t depth;
  uint32_t element_bytes;
};
ArrayShape ShapeOf(const CUDA_ARRAY3D_DESCRIPTOR& descriptor);

// For a reset of the context; nothing is in flight.
void ReleaseAllArrays();

}  // namespace gpuloom
