// SPDX-License-Identifier: Apache-2.0
// Arrays: rows of elements in device memory, without gaps, slice after slice. Mipmapped arrays are
// their levels. An array belongs to a context and goes with it. Safe from any thread.
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

// The bytes of an element, 0 for a format that is not offered. Sets what `image` says of elements.
uint32_t ElementBytes(CUarray_format format, unsigned channels, Image* image);

[[nodiscard]] CUresult MakeArray(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                                 std::shared_ptr<Array>& made);
[[nodiscard]] CUresult MakeMipmap(Context& context, const CUDA_ARRAY3D_DESCRIPTOR& descriptor,
                                  unsigned levels, std::shared_ptr<Mipmap>& made);

// nullptr for what is no array.
std::shared_ptr<Array> FindArray(CUarray handle);

// One end of a copy that begins at x_bytes, y, z. INVALID_VALUE when the block does not lie inside.
[[nodiscard]] CUresult EndOfArray(CUarray handle, const Copy& copy, uint64_t x_bytes, uint64_t y,
                                  uint64_t z, CopyEnd& end);

// Everything that lives with the context.
void DestroyArraysOf(const Context& context);

}  // namespace gpuloom::softgpu
