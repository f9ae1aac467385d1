// SPDX-License-Identifier: Apache-2.0
// Arrays: rows of elements in device memory, without gaps, slice after slice. A mipmapped array is
// the list of its levels. An array belongs to a context and ends with it; a Registry and its users
// share ownership. Safe from any thread. Failures are CUDA's errors.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "agent/softgpu/driver/copy.h"
#include "agent/softgpu/exec/machine/image.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::softgpu {

struct Context;

struct Array {
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array();

  Context* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  Image image;
  bool is_level = false;

  [[nodiscard]] CUarray handle() { return reinterpret_cast<CUarray>(this); }
};

struct Mipmap {
  Context* context = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  std::vector<std::shared_ptr<Array>> levels;  // registered, so that they can be named
};

// The size of an element in bytes; 0 for a format that is not offered. Sets the fields of `image`
// that describe elements.
uint32_t ElementBytes(CUarray_format format, unsigned channels, Image* image);

[[nodiscard]] CUresult MakeArray(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                                 std::shared_ptr<Array>& made);
[[nodiscard]] CUresult MakeMipmap(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                                  unsigned levels, std::shared_ptr<Mipmap>& made);

// nullptr when the handle names no array.
std::shared_ptr<Array> FindArray(CUarray handle);

// Describes one end of a copy that begins at x_bytes, y, z. INVALID_VALUE when the block does not
// lie inside the array.
[[nodiscard]] CUresult EndOfArray(CUarray handle, const Copy& copy, uint64_t x_bytes, uint64_t y,
                                  uint64_t z, CopyEnd& end);

// Everything that lives with the context.
void DestroyArraysOf(const Context& context);

}  // namespace gpuloom::softgpu
